"""A workdir on gs://, where a file is written as a whole or not at all."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath

from bert_jax.checkpoint import Checkpoints
from bert_jax.training.report import Report
from bert_jax.whole import absolute


class Bucket:
    """Stands for epath's way to gs://: a folder in which no file can be added to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._call, name)

    def _call(self, name: str, *arguments: str, **options: Any) -> Any:
        assert arguments[1:] != ("a",), "an object is written as a whole"
        found = [a.replace("gs://", f"{self.folder}/") for a in arguments]
        return getattr(epath.backend.os_backend, name)(*found, **options)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is in gs://bucket/run."""
    monkeypatch.setattr(epath.backend, "tf_backend", Bucket(tmp_path))
    monkeypatch.setattr(epath.gpath, "_is_tf_installed", lambda: True)
    monkeypatch.setattr(epath.gpath, "_is_zonal_gcs_bucket", lambda _: False)
    return tmp_path / "bucket" / "run"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_report_is_there_after_each_flush(written):
    workdir = epath.Path("gs://bucket/run")
    with Report(workdir, 0, 4, examples=True) as report:
        report.write(1, "train", {"loss": 1.0})
        report.write_examples(1, np.arange(2))
        report.flush()
        assert [line["step"] for line in lines(written / "metrics.jsonl")] == [1]
        report.write(2, "train", {"loss": 0.5})
    # The run went down after its checkpoint at step 1, and goes on from there.
    with Report(workdir, 1, 4, examples=True) as report:
        report.write(2, "train", {"loss": 0.25})
    found = [(line["step"], line["loss"]) for line in lines(written / "metrics.jsonl")]
    assert found == [(1, 1.0), (2, 0.25)]
    assert lines(written / "examples.jsonl") == [{"step": 1, "rows": [0, 1]}]
    assert list((written / "tensorboard").glob("events.*"))


def test_checkpoints_go_there_and_not_into_a_folder_of_that_name(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        ocp, "CheckpointManager", lambda directory, options: asked.append(directory)
    )
    monkeypatch.chdir(tmp_path)
    for name in ("gs://bucket/run", "runs/a", "/runs/b"):
        Checkpoints(epath.Path(name), 2, {}, epath.Path("tokenizer"))
    wanted = ["gs://bucket/run", f"{tmp_path}/runs/a", "/runs/b"]
    assert [str(path) for path in asked] == wanted
    assert str(absolute(epath.Path("gs://bucket"))) == "gs://bucket"
