"""Our outputs beside transformers': what the receipt says, with and without it."""

import dataclasses
import json

import numpy as np
import pytest
from etils import epath
from huggingface_files import HEADS, stored

from bert_jax.apps.convert import comparison as module
from bert_jax.apps.convert.comparison import Comparison, compare, fixed_batch
from bert_jax.cli.main import main
from bert_jax.config import BertConfig
from bert_jax.formats.huggingface import read_huggingface


@pytest.fixture
def model(tmp_path):
    folder = stored("BertForPreTraining").write(tmp_path / "model")
    return folder, read_huggingface(epath.Path(folder))


def exact(directory, config, inputs, pooler):
    """Stands for transformers: our own outputs."""
    found = read_huggingface(directory)
    return module.our_outputs(config, found.params, inputs)


@pytest.fixture
def installed(monkeypatch):
    """As if both libraries were there."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"{name} 9")
    monkeypatch.setattr(module, "transformers_outputs", exact)


def receipt(directory):
    return json.loads((directory / "conversion.json").read_text())["comparison"]


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        (["torch", "transformers"], "torch and transformers are not installed"),
        (["transformers"], "transformers is not installed"),
    ],
)
def test_without_the_libraries(model, tmp_path, monkeypatch, missing, reason):
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name in missing else name
    )
    for verb, source, output in (("import", *model[:1], "a"), ("export", "a", "b")):
        which = "--from" if verb == "import" else "--to"
        arguments = ["convert", verb, which, "huggingface"]
        arguments += [str(tmp_path / source), "--output", str(tmp_path / output)]
        assert main(arguments) == 0
        said = receipt(tmp_path / output)
        assert said["largest_difference"] is None and said["reason"] == reason


def test_the_receipt_holds_the_difference(model, tmp_path, installed, capsys):
    folder, _ = model
    output = ["--output", str(tmp_path / "a")]
    source = ["convert", "import", "--from", "huggingface", str(folder)]
    assert main(source + output) == 0
    said = receipt(tmp_path / "a")
    assert said["largest_difference"] == 0.0
    assert said["outputs"] == {"token_scores": 0.0, "pair_scores": 0.0}
    assert said["versions"]["transformers"] == "transformers 9"
    assert capsys.readouterr().err == ""


def test_a_large_difference_is_a_warning(
    model, tmp_path, installed, monkeypatch, capsys
):
    def other(directory, config, inputs, pooler):
        found = exact(directory, config, inputs, pooler)
        return found | {"pair_scores": found["pair_scores"] + 0.5}

    monkeypatch.setattr(module, "transformers_outputs", other)
    arguments = ["convert", "import", "--from", "huggingface", str(model[0])]
    assert main([*arguments, "--output", str(tmp_path / "a")]) == 0
    assert receipt(tmp_path / "a")["largest_difference"] == pytest.approx(0.5)
    said = capsys.readouterr().err
    assert said.startswith(f"bert-jax: warning: {tmp_path / 'a'}: pair_scores differs")
    assert "by 0.5 on one batch" in said and said.count("\n") == 1


def test_what_stops_transformers_is_a_reason(model, installed, monkeypatch):
    def fail(*_):
        raise RuntimeError("no\nsuch class")

    monkeypatch.setattr(module, "transformers_outputs", fail)
    folder, read = model
    found = compare(epath.Path(folder), read.config, read.params)
    assert found.largest_difference is None
    assert found.reason == "transformers does not run it: no such class"
    assert found.warning == ""


def test_outputs_that_are_not_finite_are_a_reason(model, installed, monkeypatch):
    def nan(*arguments):
        return {name: x * np.nan for name, x in exact(*arguments).items()}

    monkeypatch.setattr(module, "transformers_outputs", nan)
    folder, read = model
    found = compare(epath.Path(folder), read.config, read.params)
    assert (found.largest_difference, found.reason) == (
        None,
        "an output is NaN or infinite",
    )


def test_the_batch_follows_from_the_sizes():
    config = BertConfig.tiny()
    batch = fixed_batch(config)
    assert batch["input_ids"].shape == (2, 64)
    assert len(np.unique(batch["input_ids"])) == 128
    assert batch["attention_mask"].sum(1).tolist() == [64, 32]
    assert batch["segment_ids"].sum(1).tolist() == [48, 16]
    small = dataclasses.replace(
        config, vocab_size=9, max_position_embeddings=1, type_vocab_size=1
    )
    batch = fixed_batch(small)
    assert batch["input_ids"].max() < 9 and batch["input_ids"].shape == (2, 1)
    assert not batch["segment_ids"].any() and batch["attention_mask"].all()


def test_rounding_is_no_warning():
    versions = {"torch": "1", "transformers": "2"}
    assert Comparison(1e-5, {"scores": 1e-5}, versions).warning == ""
    line = Comparison(0.25, {"scores": 0.1, "pooled": 0.25}, versions).warning
    assert line.startswith("pooled differs from transformers 2 by 0.25 on one batch")


@pytest.mark.parity
@pytest.mark.parametrize("head", HEADS)
def test_transformers_itself(tmp_path, head):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder = epath.Path(stored(head).write(tmp_path / "model"))
    read = read_huggingface(folder)
    found = compare(folder, read.config, read.params)
    assert found.reason == "" and found.largest_difference is not None
    assert 0 < found.largest_difference <= 1e-5
    names = {"BertModel": {"hidden_states", "pooled"}}
    names |= {"BertForPreTraining": {"token_scores", "pair_scores"}}
    names |= {"BertForMaskedLM": {"token_scores"}}
    assert set(found.outputs) == names.get(head, {"scores"})
    other = dataclasses.replace(read.config, hidden_act="relu")
    assert compare(folder, other, read.params).warning


@pytest.mark.parity
def test_a_model_without_a_pooler(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    files = stored("BertModel")
    files.tensors = {k: v for k, v in files.tensors.items() if "pooler" not in k}
    folder = epath.Path(files.write(tmp_path / "model"))
    read = read_huggingface(folder)
    found = compare(folder, read.config, read.params)
    assert set(found.outputs) == {"hidden_states"} and found.warning == ""


@pytest.mark.parity
def test_files_that_transformers_lacks_a_tensor_of(tmp_path):
    """Whatever it draws in its place must not be compared."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    files = stored("BertForSequenceClassification")
    folder = epath.Path(files.write(tmp_path / "model"))
    read = read_huggingface(folder)
    del files.tensors["classifier.weight"]
    files.write(tmp_path / "model")
    found = compare(folder, read.config, read.params)
    assert found.largest_difference is None
    assert "does not find classifier.weight" in found.reason
