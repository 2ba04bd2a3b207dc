"""What `inspect` tells of datasets and models."""

import shutil

import numpy as np
import pytest

from bert_jax.apps.inspect.inspect import inspect
from bert_jax.config import BertConfig
from bert_jax.storage.manifest import DamagedError


def test_a_dataset_is_told(dataset):
    lines = list(inspect(str(dataset.path), checksums=True))
    assert dataset.fingerprint in lines[0]
    assert "pairs: nsp" in lines
    assert "row tokens: uint16 [32]" in lines
    assert any(f"train: rows {len(dataset.train):,}, " in line for line in lines)
    assert lines[-1] == "every file has the sha256 of the manifest"
    first = dataset.train.gather(np.arange(1))[0]
    shown = dataset.tokenizer.tokens(first["tokens"][: first["second"][0]].tolist())
    place = lines.index("training row 0:")
    assert lines[place + 1].startswith(f"  first: {' '.join(shown[:24])}")
    meaning = {0: "follows", 1: "random"}[int(first["next_sentence_label"][0])]
    assert lines[place + 3] == f"  second segment: {meaning}"


def test_a_damaged_dataset_is_refused_by_its_checksums(dataset, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(dataset.path, copy)
    shard = next(copy.glob("train-*.npy"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    assert "training row 0:" in list(inspect(str(copy)))
    with pytest.raises(DamagedError, match=shard.name):
        list(inspect(str(copy), checksums=True))


def test_a_workdir_is_told(pretrained):
    lines = list(inspect(str(pretrained), checksums=True))
    assert lines[0].startswith("checkpoint 10: verified, score -4.9")
    assert lines[1].startswith("checkpoint 8: verified")
    assert f"hidden_size: 16 (base has {BertConfig().hidden_size})" in lines
    assert "pooler/dense/kernel  [16, 16] float32" in lines
    total = lines[-1].removeprefix("parameters: ").replace(",", "")
    assert int(total) > 160 * 16


def test_a_broken_checkpoint_is_named_and_passed_over(pretrained, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(pretrained, copy)
    (copy / "checkpoints" / "10" / "config.json").write_text("{}")
    with pytest.warns(UserWarning, match="Skipped a newer checkpoint"):
        lines = list(inspect(str(copy), checksums=True))
    assert "config.json" in lines[0] and not lines[0].endswith("verified")
    assert lines[1].startswith("checkpoint 8: verified")


def test_what_is_none_of_these_is_refused(tmp_path, refused):
    line = refused("inspect", str(tmp_path))
    assert "holds no complete checkpoint" in line
    assert line.endswith("A dataset or a vocabulary may be named, too.")
    assert "is not a directory; name one to inspect." in refused(
        "inspect", str(tmp_path / "absent")
    )


def test_a_dataset_is_no_model_and_a_model_no_dataset(dataset, pretrained, refused):
    line = refused("fill", "The [MASK].", "--model", dataset.path)
    assert line.endswith("rows is a dataset of `bert-jax prepare`; name a model.")
    for model in (pretrained, pretrained / "checkpoints" / "10"):
        line = refused("pretrain", "--workdir", "w", "--data.path", model)
        assert f"{model} is a model or the workdir of a run; name a dataset" in line


def test_a_vocabulary_is_told(tokenizer_directory):
    lines = list(inspect(str(tokenizer_directory)))
    assert lines[0].startswith("tokenizer: wordpiece, ") and lines[0].endswith("cased")
    assert lines[1].startswith("special tokens: [PAD] 0, [UNK] 1, [CLS] 2")
    assert list(inspect(str(tokenizer_directory / "vocab.txt"))) == lines
    *_, last = inspect(str(tokenizer_directory), checksums=True)
    assert last == "no sha256 of these files is recorded: none was compared"
