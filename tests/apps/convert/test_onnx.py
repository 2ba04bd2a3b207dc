"""Models as ONNX: ONNX Runtime computes what transformers and JAX compute."""

import collections
import dataclasses
import json
import os
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from etils import epath
from family_files import write_model
from flax.traverse_util import unflatten_dict
from huggingface_files import HEADS, reference, stored
from sentence_files import write_files as write_sentence_files
from test_export import imported

import bert_jax
from bert_jax.apps.convert import onnx_export
from bert_jax.apps.convert.onnx_bert import bert_graph
from bert_jax.apps.convert.onnx_export import (
    compare_onnx,
    expected_outputs,
    export_onnx,
    onnx_outputs,
)
from bert_jax.cli.main import main
from bert_jax.config import BertConfig
from bert_jax.config.embedding import Embedding
from bert_jax.formats.names import names_of
from bert_jax.pretrained import load_pretrained
from bert_jax.storage.manifest import sha256_of

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

INPUTS = "input_ids", "attention_mask", "token_type_ids"
TOLERANCE = 1e-4
"""Of the largest value; rounding gives 1e-6."""
FILES = {"README.md", "config.json", "conversion.json", "model.onnx"} | {
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
}
SMALL = BertConfig(
    vocab_size=50,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=20,
)


def export(source: Path, output: Path) -> Path:
    export_onnx(os.fspath(source), epath.Path(output))
    return output


def assert_close(actual: np.ndarray, expected: np.ndarray, name: str) -> None:
    assert actual.shape == expected.shape and actual.dtype == np.float32, name
    scale = np.abs(expected).max()
    assert np.abs(actual - expected).max() <= TOLERANCE * scale, name


@pytest.mark.parametrize("head", HEADS)
def test_every_head_gives_the_outputs_of_transformers(tmp_path, head):
    """Under the same names; the stored outputs are of transformers, not of JAX."""
    output = export(stored(head).write(tmp_path / "in"), tmp_path / "out")
    assert {path.name for path in output.iterdir()} == FILES
    inputs, expected = reference(head)
    hidden = expected.pop("hidden_states")[-1]
    if head == "BertModel":
        expected["last_hidden_state"] = hidden
    session = onnxruntime.InferenceSession(output / "model.onnx")
    names = [found.name for found in session.get_outputs()]
    assert set(names) == set(expected)
    values = (inputs[n] for n in ("input_ids", "attention_mask", "segment_ids"))
    arrays = [x.astype(np.int64) for x in values]
    if head == "BertForMultipleChoice":
        arrays = [x.reshape(2, 2, -1) for x in arrays]
    found = session.run(names, dict(zip(INPUTS, arrays, strict=True)))
    for name, values in zip(names, found, strict=True):
        assert np.ptp(expected[name]) > 0.1
        assert_close(values, expected[name], name)


def random_params(config: BertConfig) -> dict[str, np.ndarray]:
    """Parameters with large values, so that every part of the graph matters."""
    generator = np.random.default_rng(7)
    return {
        name.ours: generator.normal(size=name.shape).astype(np.float32) / 2
        for name in names_of(config)
    }


def random_batch(config: BertConfig, rows: int, length: int) -> dict[str, np.ndarray]:
    """Rows of all lengths, named as by `fixed_batch`; the last of several is empty."""
    generator = np.random.default_rng(rows * length)
    shape = (rows, length)
    lengths = np.linspace(length, 0 if rows > 1 else length, rows).round()
    return {
        "input_ids": generator.integers(0, config.vocab_size, shape),
        "segment_ids": generator.integers(0, config.type_vocab_size, shape),
        "attention_mask": (np.arange(length) < lengths[:, None]).astype(np.int64),
    }


CLASSES = {"head": "sequence_classification", "labels": ("a", "b", "c")}
VARIANTS = {
    "tanh": {"hidden_act": "gelu_new"},
    "relu": {"hidden_act": "relu", "head": "encoder"},
    "causal": {"attention": "causal", "head": "masked_lm"},
    "causal pretraining": {"attention": "causal"},
    "mean": {"pooling": "mean", **CLASSES},
    "last": {"pooling": "last", "attention": "causal", **CLASSES},
    "mean of choices": {"pooling": "mean", "head": "multiple_choice"},
    "tags": {"head": "token_classification", "labels": ("O", "B-x")},
    "one segment": {"type_vocab_size": 1, "head": "encoder"},
    "one head": {"num_attention_heads": 1, "layer_norm_eps": 1e-5},
    "bfloat16": {"dtype": "bfloat16", "attention_kernel": "fused"},
}
DEFAULT = ("causal pretraining", "mean")
"""Those that the default tests run."""


@pytest.mark.parametrize(
    "name",
    [
        name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow)
        for name in VARIANTS
    ],
)
def test_every_configuration_gives_the_outputs_of_jax(tmp_path, name):
    config = dataclasses.replace(SMALL, **VARIANTS[name])
    params = random_params(config)
    embedding = Embedding(normalize=True) if config.head == "encoder" else None
    graph = bert_graph(config, params, embedding)
    assert graph.used.keys() == params.keys()
    graph.write(epath.Path(tmp_path))
    tree = jax.device_put(unflatten_dict(params, sep="/"))
    for rows, length in ((1, 1), (3, 7), (5, 20)):
        batch = random_batch(config, rows, length)
        found = onnx_outputs(epath.Path(tmp_path), config, batch)
        expected = expected_outputs(config, tree, batch, embedding)
        assert found.keys() == expected.keys()
        for output, values in expected.items():
            assert_close(found[output], values, f"{output} {rows} {length}")


def test_a_hidden_token_has_no_effect(tmp_path):
    """Neither padding nor, for a causal model, a later token."""
    config = dataclasses.replace(SMALL, head="masked_lm", attention="causal")
    bert_graph(config, random_params(config)).write(epath.Path(tmp_path))
    batch = random_batch(config, 1, 8)
    batch["attention_mask"][:, 6:] = 0
    before = onnx_outputs(epath.Path(tmp_path), config, batch)["logits"]
    batch["input_ids"][:, 6:] += 1
    batch["input_ids"] %= config.vocab_size
    after = onnx_outputs(epath.Path(tmp_path), config, batch)["logits"]
    np.testing.assert_array_equal(before[:, :6], after[:, :6])
    batch["input_ids"][:, 4] = (batch["input_ids"][:, 4] + 1) % config.vocab_size
    after = onnx_outputs(epath.Path(tmp_path), config, batch)["logits"]
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert np.abs(before[:, 4:6] - after[:, 4:6]).min(-1).max() > 0


def test_more_tokens_than_positions_are_an_error(tmp_path):
    bert_graph(SMALL, random_params(SMALL)).write(epath.Path(tmp_path))
    with pytest.raises(Exception, match="20 by 21|21 by 20"):
        onnx_outputs(epath.Path(tmp_path), SMALL, random_batch(SMALL, 1, 21))


def test_large_models_have_a_second_file(tmp_path):
    params = random_params(SMALL)
    one, other = epath.Path(tmp_path / "one"), epath.Path(tmp_path / "other")
    for folder, limit in ((one, 2**31), (other, 1000)):
        folder.mkdir()
        bert_graph(SMALL, params).write(folder, limit)
    assert [path.name for path in one.iterdir()] == ["model.onnx"]
    assert {path.name for path in other.iterdir()} == {"model.onnx", "model.onnx_data"}
    assert (other / "model.onnx").stat().length < (one / "model.onnx").stat().length / 2
    batch = random_batch(SMALL, 3, 9)
    expected = onnx_outputs(one, SMALL, batch)
    for name, values in onnx_outputs(other, SMALL, batch).items():
        np.testing.assert_array_equal(values, expected[name])


def test_the_optimizer_fuses_every_layer(tmp_path):
    """ONNX Runtime's own for BERT, whose operators it knows on all devices."""
    from onnxruntime.transformers import optimizer

    bert_graph(SMALL, random_params(SMALL)).write(epath.Path(tmp_path))
    path = str(tmp_path / "model.onnx")
    sizes = {"num_heads": 3, "hidden_size": 24}
    fused = optimizer.optimize_model(path, "bert", opt_level=0, **sizes)
    kinds = collections.Counter(node.op_type for node in fused.model.graph.node)
    assert kinds["EmbedLayerNormalization"] == 1 and kinds["Attention"] == 2
    assert kinds["SkipLayerNormalization"] == 4 and kinds["BiasGelu"] == 3
    assert not kinds.keys() & {"Softmax", "Erf", "Reshape"}
    (tmp_path / "fused").mkdir()
    fused.save_model_to_file(str(tmp_path / "fused" / "model.onnx"))
    batch = random_batch(SMALL, 3, 9)
    expected = onnx_outputs(epath.Path(tmp_path), SMALL, batch)
    found = onnx_outputs(epath.Path(tmp_path / "fused"), SMALL, batch)
    for name, values in expected.items():
        assert_close(found[name], values, name)


def test_old_runtimes_can_read_it(tmp_path):
    bert_graph(SMALL, random_params(SMALL)).write(epath.Path(tmp_path))
    model = onnx.load(str(tmp_path / "model.onnx"))
    assert [(x.domain, x.version) for x in model.opset_import] == [("", 17)]
    assert model.ir_version == 8  # of 2021


def run_readme(output: Path, capsys: pytest.CaptureFixture[str], text: str) -> str:
    """Run the program of an export's README; return what it prints of `text`."""
    page = (output / "README.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(program.splitlines()) < 20
    capsys.readouterr()
    texts = f"texts = {text}\n" if text else r"\g<0>"
    exec(re.sub(r"^texts = .*\n", texts, program, flags=re.MULTILINE), {})
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize("head", HEADS)
def test_the_readme_runs(tmp_path, capsys, monkeypatch, head):
    output = export(imported(head, tmp_path), tmp_path / "out")
    monkeypatch.chdir(output)
    printed = run_readme(output, capsys, "")
    expected = {
        "BertModel": r"\(2, \d+, 32\)",
        "BertForMultipleChoice": r"\[[01]\]",
        "BertForQuestionAnswering": r"[\w ]*\.?",
        "BertForSequenceClassification": r"\['\w+', '\w+'\]",
        "BertForTokenClassification": r"\[\('\[CLS\]', '\w+'\), .*\]",
    }
    assert re.fullmatch(expected.get(head, r"\S+"), printed)


def test_the_readme_runs_where_a_mask_takes_the_space_before_it(
    tmp_path, capsys, monkeypatch
):
    output = export(write_model("RobertaForMaskedLM", tmp_path / "a"), tmp_path / "out")
    monkeypatch.chdir(output)
    assert run_readme(output, capsys, "")


def test_the_readme_predicts_what_the_model_predicts(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    classifier = imported("BertForSequenceClassification", tmp_path, pooling="mean")
    texts = [f"{letter} the cat {letter * 3} mat" for letter in "abcdefgh"]
    monkeypatch.chdir(export(classifier, tmp_path / "classifier"))
    printed = run_readme(tmp_path / "classifier", capsys, repr(texts))
    labels = [one["label"] for one in bert_jax.load(classifier).classify(texts)]
    assert eval(printed) == labels and len(set(labels)) > 1

    (tmp_path / "second").mkdir()
    masked = imported("BertForMaskedLM", tmp_path / "second")
    monkeypatch.chdir(export(masked, tmp_path / "masked"))
    text = "the [MASK] mat"
    ((best, _),) = bert_jax.load(masked).fill_mask(text, k=1)
    assert run_readme(tmp_path / "masked", capsys, repr([text])) == best


def test_the_readme_of_a_model_of_pairs_has_pairs(tmp_path, capsys, monkeypatch):
    """Of single texts it printed what the model never learned."""
    path = imported("BertForSequenceClassification", tmp_path)
    run = {"task": "text-classification", "data": {"num_texts": 2}}
    model = dataclasses.replace(load_pretrained(os.fspath(path)), run=run)
    export_onnx(model, epath.Path(tmp_path / "out"))
    monkeypatch.chdir(tmp_path / "out")
    pairs = [("Was it dark?", "It was dark."), ("Who was there?", "It rained.")]
    labels = [one["label"] for one in bert_jax.load(path).classify(pairs)]
    assert eval(run_readme(tmp_path / "out", capsys, "")) == labels


def test_a_model_of_sentences_gives_its_vectors(tmp_path, capsys, monkeypatch):
    """All files that describe the vector go along, for servers that read them."""
    folder = stored("BertModel").write(tmp_path / "in")
    kinds = [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
        ("Normalize", "2_Normalize"),
    ]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": path,
            "type": f"sentence_transformers.{kind}",
        }
        for i, (kind, path) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    output = export(folder, tmp_path / "out")
    pooling = json.loads((output / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"]
    monkeypatch.chdir(output)
    assert run_readme(output, capsys, "") == "(2, 32)"
    page = (output / "README.md").read_text()
    assert "enable_truncation(9)" in page
    texts = ["the cat", "a mat is the mat of the cat"]
    values: dict[str, object] = {}
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    exec(re.sub(r"texts = .*", f"texts = {texts}", program), values)
    vectors = bert_jax.load(folder).embed(texts)
    assert_close(values["sentence_embedding"], np.asarray(vectors), "vectors")


@pytest.mark.parametrize("name", ["RobertaModel", "DistilBertModel", "ElectraModel"])
def test_the_inputs_are_what_the_tokenizer_gives(tmp_path, capsys, monkeypatch, name):
    """A tokenizer without segments gives none, and the graph does not ask for them."""
    source = write_model(name, tmp_path / "in")
    output = export(source, tmp_path / "out")
    settings = json.loads((output / "tokenizer_config.json").read_text())
    session = onnxruntime.InferenceSession(output / "model.onnx")
    inputs = {entry.name for entry in session.get_inputs()}
    assert inputs == set(settings["model_input_names"])
    assert ("token_type_ids" in inputs) == (name == "ElectraModel")
    receipt = json.loads((output / "conversion.json").read_text())
    assert 0 < receipt["comparison"]["largest_difference"] < 1e-4
    monkeypatch.chdir(output)
    texts = ["the cat", "a mat, the cat"]
    assert re.fullmatch(r"\(2, \d+, \d+\)", run_readme(output, capsys, repr(texts)))
    vectors = bert_jax.load(source).embed(texts)
    program = re.findall(r"```python\n(.*?)```", Path("README.md").read_text(), re.S)
    values: dict[str, object] = {}
    exec(re.sub(r"texts = .*", f"texts = {texts}", program[0]), values)
    mask = np.array([row.attention_mask for row in values["rows"]])[:, :, None]
    means = (values["last_hidden_state"] * mask).sum(1) / mask.sum(1)
    assert_close(means.astype(np.float32), np.asarray(vectors), "vectors")


@pytest.mark.parity
@pytest.mark.parametrize("name", ["RobertaModel", "DistilBertModel", "ElectraModel"])
def test_transformers_tokenizer_feeds_it(tmp_path, name):
    transformers = pytest.importorskip("transformers")
    output = export(write_model(name, tmp_path / "in"), tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    texts = ["the cat", "a mat, the cat"]
    inputs = tokenizer(texts, padding=True, return_tensors="np")
    session = onnxruntime.InferenceSession(output / "model.onnx")
    arrays = {name: values.astype(np.int64) for name, values in inputs.items()}
    hidden = session.run(["last_hidden_state"], arrays)[0]
    mask = inputs["attention_mask"][:, :, None]
    means = ((hidden * mask).sum(1) / mask.sum(1)).astype(np.float32)
    vectors = bert_jax.load(tmp_path / "in").embed(texts)
    assert_close(means, np.asarray(vectors), "vectors")


def test_a_prompt_that_is_not_pooled_is_refused(tmp_path):
    """The graph's inputs do not tell where the prompt ends."""
    folder = write_sentence_files("bge", tmp_path / "in")
    path = folder / "1_Pooling" / "config.json"
    path.write_text(json.dumps({"pooling_mode": "mean", "include_prompt": False}))
    prompts = {"prompts": {"query": "query: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    with pytest.raises(ValueError, match=r"include_prompt=False.*--to huggingface"):
        export(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_lies_beside_the_graph(tmp_path):
    source = imported("BertForSequenceClassification", tmp_path, pooling="mean")
    output = export(source, tmp_path / "out")
    receipt = json.loads((output / "conversion.json").read_text())
    files = {entry["path"]: entry["sha256"] for entry in receipt["files"]}
    assert files.keys() == FILES - {"conversion.json"}
    assert files["model.onnx"] == sha256_of(epath.Path(output / "model.onnx"))
    model = onnx.load(str(output / "model.onnx"))
    tensors = {x.name: list(x.dims) for x in model.graph.initializer}
    for entry in receipt["tensors"]:
        assert tensors[entry["target"]] == entry["shape"]
    assert "pooler/dense/kernel" not in tensors
    comparison = receipt["comparison"]
    assert 0 < comparison["largest_difference"] < 1e-4
    assert comparison["versions"] == {"onnxruntime": onnxruntime.__version__}
    config = json.loads((output / "config.json").read_text())
    assert config["id2label"] == {"0": "sad", "1": "calm", "2": "glad"}
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["pooling"] == "mean" and config["attention"] == "bidirectional"


def test_other_outputs_are_noticed(tmp_path):
    """The comparison of an export fails if the graph computes something else."""
    params = random_params(SMALL)
    bert_graph(SMALL, params).write(epath.Path(tmp_path))
    params["next_sentence/dense/bias"] += 0.5
    tree = unflatten_dict(params, sep="/")
    found = compare_onnx(epath.Path(tmp_path), SMALL, tree, None)
    assert found.outputs["seq_relationship_logits"] == pytest.approx(0.5, abs=1e-4)
    assert found.outputs["prediction_logits"] < 1e-4
    assert "differs from onnxruntime" in found.warning


def test_without_the_libraries(tmp_path, capsys, refused, monkeypatch):
    source = str(stored("BertModel").write(tmp_path / "in"))
    common = ["convert", "export", source, "--to", "onnx", "--output"]
    find = onnx_export.importlib.util.find_spec
    missing = {onnx_export.RUNTIME}
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name in missing else find(name)
    )
    assert main([*common, str(tmp_path / "a")]) == 0
    printed = capsys.readouterr().out
    assert "gives last_hidden_state, pooler_output; not compared, because" in printed
    missing.add("onnx")
    error = refused(*common, str(tmp_path / "b"))
    assert "onnx, which is missing; `pip install 'bert_jax[onnx]'`" in error
    assert not (tmp_path / "b").exists()


def test_importing_the_module_does_not_import_the_libraries(tmp_path):
    import subprocess

    code = (
        "import sys, bert_jax.apps.convert.onnx_export;"
        "print([m for m in ('onnx', 'onnxruntime') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_the_command(tmp_path, capsys, refused):
    source = os.fspath(imported("BertForQuestionAnswering", tmp_path))
    command = ["convert", "export", source, "--to", "onnx"]
    command += ["--output", os.fspath(tmp_path / "out")]
    assert "batch_size=4 needs --to stablehlo" in refused(*command, "--batch-size", "4")
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "model.onnx gives start_logits, end_logits; onnxruntime" in printed.out
    assert printed.err == ""
    assert "is not an empty directory" in refused(*command)
