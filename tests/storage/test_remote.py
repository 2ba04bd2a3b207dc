"""Runs and files on gs://, where a file is written as a whole or not at all."""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath
from huggingface_files import stored
from run_helpers import write_config

import bert_jax
from bert_jax.checkpoints.manager import Checkpoints
from bert_jax.cli.main import main
from bert_jax.config import OptimizerConfig, RunConfig
from bert_jax.data.example_cache import cached_examples
from bert_jax.data.examples import TokenizedExamples, from_rows
from bert_jax.data.records import Dataset, open_dataset
from bert_jax.formats.huggingface import read_huggingface
from bert_jax.storage.atomic import absolute
from bert_jax.storage.manifest import DamagedError
from bert_jax.storage.remote import local_copy
from bert_jax.tokenization import Tokenizer
from bert_jax.training.report import Report


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return tmp_path / "caches" / "bert_jax" / "datasets"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_report_is_there_after_each_flush(buckets):
    workdir, written = epath.Path("gs://bucket/run"), buckets / "bucket" / "run"
    config = RunConfig(
        num_steps=4,
        log_examples=True,
        optimizer=OptimizerConfig(warmup_steps=0),
    )
    with Report(workdir, 0, config) as report:
        report.write(1, "train", {"loss": 1.0})
        report.write_examples(1, np.arange(2))
        report.flush().result()
        assert [line["step"] for line in lines(written / "metrics.jsonl")] == [1]
        report.write(2, "train", {"loss": 0.5})
    # The run went down after its checkpoint at step 1, and goes on from there.
    with Report(workdir, 1, config) as report:
        report.write(2, "train", {"loss": 0.25})
    found = [(line["step"], line["loss"]) for line in lines(written / "metrics.jsonl")]
    assert found == [(1, 1.0), (2, 0.25)]
    assert lines(written / "examples.jsonl") == [{"step": 1, "rows": [0, 1]}]
    assert list((written / "tensorboard").glob("events.*"))


def test_checkpoints_go_there_and_not_into_a_folder_of_that_name(monkeypatch, tmp_path):
    asked = []
    manager = mock.create_autospec(ocp.CheckpointManager, instance=True)

    def record(directory: epath.Path) -> object:
        asked.append(directory)
        return manager

    monkeypatch.setattr(
        ocp, "CheckpointManager", lambda directory, options: record(directory)
    )
    monkeypatch.chdir(tmp_path)
    for name in ("gs://bucket/run", "runs/a", "/runs/b"):
        Checkpoints(epath.Path(name), 2, {}, epath.Path("tokenizer"))
    wanted = ["gs://bucket/run", f"{tmp_path}/runs/a", "/runs/b"]
    assert [str(path) for path in asked] == wanted
    assert str(absolute(epath.Path("gs://bucket"))) == "gs://bucket"


def test_a_dataset_is_copied_to_this_machine_once(buckets, caches, dataset, capsys):
    shutil.copytree(dataset.path, buckets / "bucket" / "data")
    found = open_dataset("gs://bucket/data", verify=True)
    assert found.fingerprint == dataset.fingerprint
    assert found.path.parent == epath.Path(caches)
    assert (
        found.train.gather(np.arange(3)) == dataset.train.gather(np.arange(3))
    ).all()
    assert "Copying gs://bucket/data, " in capsys.readouterr().out
    # What is there is not fetched again, but for the manifest, which names it.
    for shard in (buckets / "bucket" / "data").glob("*.npy"):
        shard.unlink()
    assert open_dataset("gs://bucket/data").path == found.path
    assert capsys.readouterr().out == ""


def damaged(bucket: Path, dataset: Dataset) -> str:
    shutil.copytree(dataset.path, bucket / "data")
    shard = bucket / "data" / dataset.manifest["shards"][0]["path"]
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    return "has another sha256"


def pointing_outside(bucket: Path, dataset: Dataset) -> str:
    shutil.copytree(dataset.path, bucket / "data")
    manifest = json.loads((bucket / "data" / "manifest.json").read_text())
    del manifest["checksum"], manifest["text"]  # as version 0.1.0 wrote it
    manifest["shards"][0]["path"] = "../../stray"
    (bucket / "data" / "manifest.json").write_text(json.dumps(manifest))
    return "names '../../stray', outside of gs://bucket/data"


def of_something_else(bucket: Path, dataset: Dataset) -> str:
    (bucket / "data").mkdir()
    (bucket / "data" / "manifest.json").write_text('{"files": []}')
    return "is not a dataset's manifest"


@pytest.mark.parametrize("broken", [damaged, pointing_outside, of_something_else])
def test_a_copy_that_is_not_whole_is_not_kept(broken, buckets, caches, dataset):
    (buckets / "bucket").mkdir()
    problem = broken(buckets / "bucket", dataset)
    with pytest.raises(DamagedError, match=problem):
        local_copy(epath.Path("gs://bucket/data"))
    assert [path.suffix for path in caches.iterdir()] == [".lock"]


def test_a_tokenizer_is_read_there(buckets, dataset):
    shutil.copytree(dataset.path / "tokenizer", buckets / "bucket" / "vocabulary")
    found = Tokenizer.load("gs://bucket/vocabulary")
    assert found.fingerprint == dataset.tokenizer.fingerprint


def test_a_model_of_hugging_face_is_read_there(buckets):
    (buckets / "bucket").mkdir()
    local = stored("BertForMaskedLM").write_shards(buckets / "bucket" / "model")
    found = read_huggingface(epath.Path("gs://bucket/model"))
    expected = read_huggingface(epath.Path(local))
    for one, other in zip(
        jax.tree.leaves(found.params), jax.tree.leaves(expected.params), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert [leaf.source for leaf in found.leaves] == [
        leaf.source for leaf in expected.leaves
    ]


class Unreachable:
    def exists(self, path: str) -> bool:
        raise RuntimeError(f"No host\nof {path}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["pretrain", "--data.path", "gs://no/data", "--workdir", "runs/a"],
        ["inspect", "gs://no/data"],
        ["evaluate", "--model", "gs://no/data"],
        ["prepare", "--input", "x", "--tokenizer", "gs://no/data", "--output", "y"],
    ],
)
def test_what_cannot_be_reached_is_one_line(arguments, monkeypatch, refused, tmp_path):
    monkeypatch.setattr(epath.backend, "tf_backend", Unreachable())
    monkeypatch.setattr(epath.gpath, "_is_tf_installed", lambda: True)
    monkeypatch.chdir(tmp_path)
    line = refused(*arguments)
    assert line.startswith(
        "bert-jax: gs://no/data cannot be reached: No host of gs://no/data"
    )
    assert list(tmp_path.iterdir()) == []


def test_addresses_of_other_kinds_are_refused(refused):
    assert "is an address of a kind that is not supported" in refused(
        "inspect", "ftp://host/data"
    )


@pytest.mark.parametrize("output", ["gs://bucket/data", "ftp://host/data"])
def test_outputs_are_local(output, dataset, refused, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("One sentence.\n")
    tokenizer = str(dataset.path / "tokenizer")
    for arguments in (
        ["prepare", "--input", str(text), "--tokenizer", tokenizer],
        ["vocab", "--input", str(text)],
        ["convert", "import", "nowhere", "--from", "huggingface"],
        ["convert", "export", "nowhere", "--to", "stablehlo"],
        ["convert", "extend", "nowhere"],
    ):
        line = refused(*arguments, "--output", output)
        assert f"output={output} is not a local directory" in line


def test_scores_and_the_demo_are_written_to_local_directories(refused):
    """A `Path` of an address would be a directory `gs:` here."""
    with pytest.raises(ValueError, match="output=gs://b/c is not a local directory"):
        bert_jax.evaluate("nowhere", output="gs://b/c")
    assert "gs://b/c is not a local" in refused("demo", "--workdir", "gs://b/c")


def written_table(path: Path) -> Path:
    texts = [f"The {'judge' if i % 2 else 'clerk'} reads.,{i % 2}" for i in range(24)]
    path.write_text("\n".join(["review,who", *texts]) + "\n")
    return path


def test_examples_are_cached_there(buckets):
    directory, calls = epath.Path("gs://bucket/cache"), []

    def make() -> TokenizedExamples:
        calls.append(1)
        return from_rows([([2, 7, 3], 3), ([2, 8, 3], 3)], np.array([0, 1], np.int32))

    first = cached_examples(directory, "one", make)
    again = cached_examples(directory, "one", make)
    assert len(calls) == 1 and first.tokens.tolist() == again.tokens.tolist()
    assert [path.name for path in (buckets / "bucket/cache").iterdir()] == ["one.npz"]


@pytest.mark.slow
def test_every_verb_of_a_run_works_there(buckets, caches, dataset, small_config):
    """Each file is written once from start to end, and none is renamed half-written."""
    pretraining = write_config(small_config, buckets / "pretraining.py")
    shutil.copytree(dataset.path, buckets / "bucket" / "data")
    run = ["pretrain", str(pretraining), "--data.path", "gs://bucket/data"]
    first = ["--workdir", "gs://bucket/run"]
    assert main([*run, *first, "--report", "csv", "--keep-checkpoints=9"]) == 0
    assert (
        main([*run, *first, "--extend", "--num-steps=12", "--keep-checkpoints=9"]) == 0
    )
    lines_there = lines(buckets / "bucket/run/metrics.jsonl")
    assert [x["step"] for x in lines_there if x["split"] == "train"] == [*range(1, 13)]
    forked = str(buckets / "forked")
    assert main(["fork", "gs://bucket/run", "--at", "8", "--output", forked]) == 0
    table = written_table(buckets / "train.csv")
    tuned = ["--workdir", "gs://bucket/tuned", "--init-from", "gs://bucket/run"]
    columns = ["--text-column", "review", "--label-column", "who"]
    few = ["--num-steps", "4", "--batch-size=4", "--mesh.data=1"]
    options = ["--data.train", str(table), *columns, *few]
    for _ in range(2):  # the second reads what is there
        assert main(["finetune", "text-classification", *options, *tuned]) == 0
    model = ["--model", "gs://bucket/tuned"]
    assert main(["evaluate", *model, "--input", str(table)]) == 0
    assert main(["predict", *model, "--input", str(table)]) == 0
    runs = ["--workdir", "gs://bucket/runs", "--init-from", "gs://bucket/run"]
    seeds = [*options, *runs, "--seeds", "2"]
    assert main(["finetune", "text-classification", *seeds]) == 0
    assert main(["inspect", "gs://bucket/tuned", "--verify"]) == 0
    assert not list(buckets.rglob("*.tmp"))
