"""Models as StableHLO: they run without the package, and compute the same."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilers import needs_libtpu
from etils import epath
from flax.traverse_util import flatten_dict
from huggingface_files import reference, stored
from test_export import imported

from bert_jax.apps.convert.stablehlo import PLATFORMS, export_stablehlo, lower
from bert_jax.cli.main import main
from bert_jax.config import BertConfig
from bert_jax.distributed.topologies import devices_of, parse_topology
from bert_jax.model.bert import head_outputs, init_params
from bert_jax.model.inputs import Inputs
from bert_jax.pretrained import load_pretrained
from bert_jax.tokenization import Tokenizer

T = 16
FILES = {"conversion.json", "config.json", "load.py", "model.stablehlo"} | {
    "params.safetensors",
    "tokenizer",
}
ALONE = """
import sys
for name in ("bert_jax", "flax", "safetensors", "tensorflow", "orbax", "etils"):
    sys.modules[name] = None  # importing it fails
sys.path.insert(0, sys.argv[1])
import numpy as np
import load
inputs = np.load(sys.argv[2])
names = ("input_ids", "segment_ids", "attention_mask")
for rows in map(int, sys.argv[4:]):
    found = load.outputs(*(inputs[name][:rows] for name in names))
    np.savez(f"{sys.argv[3]}{rows}.npz", **found)
"""


def export(source: Path, output: Path, batch_size: int | None, length: int = T) -> Path:
    export_stablehlo(os.fspath(source), epath.Path(output), batch_size, length)
    return output


def run_alone(output: Path, *batch_sizes: int) -> subprocess.CompletedProcess[str]:
    """Run load.py in a process that cannot import the package, on the first rows."""
    inputs, _ = reference("BertModel")
    np.savez(output.parent / "inputs.npz", **inputs)
    return subprocess.run(
        [sys.executable, "-c", ALONE, output, output.parent / "inputs.npz"]
        + [output.parent / "rows", *map(str, batch_sizes)],
        capture_output=True,
        text=True,
    )


def expected(source: Path) -> dict[str, np.ndarray]:
    inputs, _ = reference("BertModel")
    bert = load_pretrained(os.fspath(source))
    arrays = [jnp.asarray(values) for values in inputs.values()]
    arrays[2] = arrays[2] > 0
    found = head_outputs(bert.config, jax.device_put(bert.params), Inputs(*arrays))
    hidden = found.pop("hidden_states")[-1]
    return {name: np.asarray(x) for name, x in {"hidden": hidden, **found}.items()}


@pytest.mark.parametrize(
    ("head", "changes", "batch_size", "rows"),
    [
        pytest.param(
            "BertForPreTraining",
            {"attention": "causal"},
            None,
            (1, 3, 4),
            marks=pytest.mark.slow,
        ),
        ("BertForSequenceClassification", {"pooling": "mean"}, 4, (4,)),
    ],
)
def test_it_runs_without_the_package(tmp_path, head, changes, batch_size, rows):
    source = imported(head, tmp_path, **changes)
    output = export(source, tmp_path / "out", batch_size)
    assert {path.name for path in output.iterdir()} == FILES
    ended = run_alone(output, *rows)
    assert ended.returncode == 0, ended.stderr
    ours = expected(source)
    assert np.ptp(ours["hidden"]) > 1
    for count in rows:
        with np.load(tmp_path / f"rows{count}.npz") as found:
            assert set(found) == set(ours)
            for name, values in ours.items():
                # The same program; only the order of float32 sums may differ, by some
                # 1e-7 of scores up to 30.
                np.testing.assert_allclose(
                    found[name], values[:count], rtol=0, atol=2e-5, err_msg=name
                )


def test_a_fixed_batch_is_the_only_one(tmp_path):
    output = export(imported("BertModel", tmp_path), tmp_path / "out", 2)
    ended = run_alone(output, 3)
    assert ended.returncode != 0
    assert "shape" in ended.stderr


@pytest.mark.slow
@needs_libtpu
def test_a_fused_kernel_is_left_to_the_device_that_trains():
    """It is of one platform, and the program is of all."""
    fields = {"head": "encoder", "attention_kernel": "fused", "dtype": "bfloat16"}
    config = BertConfig.miniature(1, 128, vocab_size=8, **fields)
    params = jax.device_get(init_params(config, jax.random.key(0)))
    with jax.default_device(devices_of(parse_topology("v5e:2x2"))[0]):
        program = lower(config, flatten_dict(params, sep="/"), 1, 128)
    assert program.platforms == PLATFORMS


def test_what_lies_beside_the_program(tmp_path):
    source = imported("BertForQuestionAnswering", tmp_path)
    output = export(source, tmp_path / "out", None)
    loader = (output / "load.py").read_text()
    assert "question_answering" in loader and "[any, 16]" in loader
    assert f"scores [batch, {T}, 2]" in loader
    receipt = json.loads((output / "conversion.json").read_text())
    assert "encoder/layer_1/feed_forward/in/kernel" in {
        entry["target"] for entry in receipt["tensors"]
    }
    program = jax.export.deserialize((output / "model.stablehlo").read_bytes())
    assert program.platforms == PLATFORMS
    # The parameters are arguments: the program does not hold them again.
    sizes = {name: (output / name).stat().st_size for name in FILES}
    assert sizes["model.stablehlo"] < sizes["params.safetensors"]
    text = "the cat"
    tokenizers = Tokenizer.load(source), Tokenizer.load(output)
    one, other = (tokenizer.encode(text).ids.tolist() for tokenizer in tokenizers)
    assert one == other


@pytest.mark.parametrize(
    ("batch_size", "length", "message"),
    [
        (0, T, "batch_size=0 must be at least 1; leave it out for any"),
        (None, 0, "sequence_length=0 must be from 1 to max_position_embeddings=20"),
        (None, 21, "sequence_length=21 must be from 1 to max_position_embeddings=20"),
    ],
)
def test_sizes_that_the_model_cannot_take(tmp_path, batch_size, length, message):
    source = stored("BertModel").write(tmp_path / "in")
    with pytest.raises(ValueError, match=message):
        export(source, tmp_path / "out", batch_size, length)
    assert not (tmp_path / "out").exists()


def test_without_flatbuffers_the_remedy_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(
        ValueError, match="flatbuffers, and the latter is missing; `pip"
    ):
        export(tmp_path, tmp_path / "out", None)


def test_the_command(tmp_path, capsys, refused):
    source = os.fspath(imported("BertForSequenceClassification", tmp_path))
    common = ["convert", "export", source, "--output", os.fspath(tmp_path / "out")]
    assert "batch_size=4 needs --to stablehlo" in refused(
        *common, "--to", "huggingface", "--batch-size", "4"
    )
    assert "sequence_length=128 must be from 1 to" in refused(
        *common, "--to", "stablehlo", "--sequence-length", "128"
    )
    # Of a model of fewer than 128 positions, all of them.
    assert main([*common, "--to", "stablehlo"]) == 0
    assert "load.py gives hidden, pooled, scores." in capsys.readouterr().out
    assert "is not an empty directory" in refused(*common, "--to", "huggingface")
    common[-1] = os.fspath(tmp_path / "other")
    assert main([*common, "--to", "huggingface"]) == 0
    assert "41 tensors; conversion.json lists them." in capsys.readouterr().out
    assert load_pretrained(common[-1]).config.labels == ("sad", "calm", "glad")
