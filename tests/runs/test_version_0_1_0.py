"""What version 0.1.0 wrote stays readable: its dataset, workdirs and checkpoints.

`golden/version_0_1_0.tar.gz` holds a dataset, a pretraining and a fine-tuning workdir
of a one-layer model, and `expected.json` with outputs, all made by version 0.1.0.
"""

import dataclasses
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from etils import epath
from run_helpers import logged_lines

import bert_jax
from bert_jax.checkpoints.steps import read_config_as
from bert_jax.config import FinetuneConfig, PretrainConfig
from bert_jax.data.records import open_dataset
from bert_jax.storage.manifest import describe_files, read_manifest, write_manifest

ARCHIVE = Path(__file__).parent.parent / "golden" / "version_0_1_0.tar.gz"
TEXT = "The judge reads the map in the garden."


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files; their configurations name each other by relative paths."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_dataset_and_models_open(old):
    dataset = open_dataset(old / "dataset", verify=True)
    assert len(dataset.train) > len(dataset.validation) > 0
    expected = json.loads((old / "expected.json").read_text())
    pretrained = bert_jax.load(old / "pretraining")
    found = pretrained.embed([TEXT])[0]
    np.testing.assert_allclose(found, expected["embed"], atol=2e-5)
    filled = dict(pretrained.fill_mask("The judge reads the [MASK] in the garden."))
    assert filled == pytest.approx(dict(expected["fill"]), abs=2e-5)
    finetuned = bert_jax.load(old / "finetuning").classify([TEXT])[0]
    assert finetuned["label"] == expected["classify"]["label"]
    probabilities = expected["classify"]["probabilities"]
    assert finetuned["probabilities"] == pytest.approx(probabilities, abs=2e-5)


@pytest.mark.slow
def test_its_pretraining_resumes(old):
    """From step 4, to the validation loss that version 0.1.0 had at step 8."""
    workdir = old / "pretraining"
    (last,) = [
        line for line in logged_lines(workdir, "validation") if line["step"] == 8
    ]
    shutil.rmtree(workdir / "checkpoints" / "8")
    config = read_config_as(epath.Path(workdir), "", PretrainConfig)
    scores = bert_jax.pretrain(config, workdir)
    assert scores["loss"] == pytest.approx(last["loss"], rel=1e-5)
    assert [line["step"] for line in logged_lines(workdir)][-1] == 8


def set_length(workdir: Path, length: int) -> None:
    """Change the rows of a run with a checkpoint of step 4."""
    checkpoint = epath.Path(workdir / "checkpoints" / "4")
    for folder in (workdir, checkpoint):
        text = (folder / "config.json").read_text()
        text = text.replace('"max_length": 32', f'"max_length": {length}')
        (folder / "config.json").write_text(text)
    manifest = read_manifest(checkpoint)
    names = [entry["path"] for entry in manifest["files"]]
    files = describe_files(checkpoint, names)
    write_manifest(manifest | {"files": files}, checkpoint)


@pytest.mark.slow
def test_its_finetuning_resumes(old):
    """The fingerprint of the examples is still the same; rows keep their length."""
    workdir = old / "finetuning"
    assert not (workdir / "checkpoints" / "8").exists()
    set_length(workdir, 24)  # the model that it began with has rows of 32
    config = read_config_as(epath.Path(workdir), "", FinetuneConfig)
    assert config.data.max_length == 24
    data = dataclasses.replace(config.data, max_length=0)
    config = dataclasses.replace(config, data=data)
    scores = bert_jax.finetune(config, workdir)
    assert scores["loss"] > 0
    last = workdir / "checkpoints" / "8"
    assert (last / "manifest.json").exists()
    assert json.loads((last / "config.json").read_text())["data"]["max_length"] == 24
