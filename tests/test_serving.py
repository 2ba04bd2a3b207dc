"""docs/serving.md: its programs run on the exports that it names."""

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_files import stored

import bert_jax
from bert_jax.cli.main import main

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

PAGE = (Path(__file__).parents[1] / "docs" / "serving.md").read_text()
PROGRAMS = {
    title: program
    for title, part in re.findall(r"^##+ (.*)\n((?:.|\n)*?)(?=^##|\Z)", PAGE, re.M)
    for program in re.findall(r"```python\n(.*?)```", part, re.DOTALL)[:1]
}
TEXTS = ["a moving film", "two hours too long"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The three exports of a text classifier, made by the page's own commands."""
    folder = tmp_path_factory.mktemp("serving")
    stored("BertForSequenceClassification").write(folder / "reviews")
    commands = re.findall(r"^    bert-jax (convert export .*)$", PAGE, re.M)
    assert len(commands) == 3
    with contextlib.chdir(folder):
        for command in commands:
            assert main(command.replace("runs/reviews", "reviews").split()) == 0
        yield folder


def printed(*titles: str) -> str:
    """What the last of these programs prints, after the others."""
    values: dict[str, object] = {}
    for title in titles:
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            exec(PROGRAMS[title], values)
    return stream.getvalue().strip()


def test_every_section_has_its_program():
    assert list(PROGRAMS) == [
        "transformers",
        "ONNX Runtime",
        "Eight-bit integers",
        "StableHLO",
    ]


@pytest.mark.parity
def test_transformers(folder):
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    predictions = [one["label"] for one in bert_jax.load("reviews").classify(TEXTS)]
    assert [one["label"] for one in eval(printed("transformers"))] == predictions


def test_onnx_runtime(folder):
    predictions = [one["label"] for one in bert_jax.load("reviews").classify(TEXTS)]
    labels = json.loads(Path("onnx/config.json").read_text())["id2label"]
    numbers = printed("ONNX Runtime").strip("[]").split()
    assert [labels[number] for number in numbers] == predictions


@pytest.mark.parametrize("title", ["transformers", "ONNX Runtime", "StableHLO"])
def test_a_program_has_ten_lines(title):
    assert len([line for line in PROGRAMS[title].splitlines() if line]) <= 10


def test_the_fused_graph(folder):
    (program,) = re.findall(r"```python\n([^`]*optimizer\.opt.*?)```", PAGE, re.DOTALL)
    exec(program, {})
    fused = onnx.load("onnx/fused.onnx")
    kinds = [node.op_type for node in fused.graph.node]
    assert kinds.count("Attention") == 2


def test_eight_bit_integers(folder):
    numbers = printed("ONNX Runtime", "Eight-bit integers").strip("[]").split()
    assert len(numbers) == 2
    quantized = onnx.load("onnx/int8.onnx")
    kinds = [node.op_type for node in quantized.graph.node]
    # Six products of each of two layers, the pooler and the classifier.
    assert kinds.count("MatMulInteger") == 14
    size, before = (
        Path(f"onnx/{name}.onnx").stat().st_size for name in ("int8", "model")
    )
    assert size < before


def test_stablehlo(folder, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "load", raising=False)
    assert re.fullmatch(r"\[\[(\s*-?\d+\.\d*){3}\s*\]\]", printed("StableHLO"))
    monkeypatch.delitem(sys.modules, "load")


def test_tritons_configuration_describes_the_graph(folder):
    (text,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    pattern = r'name: "(\w+)" data_type: TYPE_(\w+) dims: \[ (.*?) \]'
    described = [
        (name, kind, len(dims.split(",")))
        for name, kind, dims in re.findall(pattern, text)
    ]
    graph = onnx.load("onnx/model.onnx").graph
    kinds = {onnx.TensorProto.INT64: "INT64", onnx.TensorProto.FLOAT: "FP32"}
    actual = []
    for value in (*graph.input, *graph.output):
        tensor = value.type.tensor_type
        # Triton's dims are without the batch, which must be free.
        batch, *others = tensor.shape.dim
        assert batch.dim_param == "batch"
        actual.append((value.name, kinds[tensor.elem_type], len(others)))
    assert described == actual
    assert text.count("{") == text.count("}") and text.count("[") == text.count("]")
