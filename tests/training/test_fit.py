"""Runs: what they log and save, and that a resumed one equals an uninterrupted one."""

import collections
import dataclasses
import shutil
import signal
from pathlib import Path
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from run_helpers import assert_same_run, logged_lines

import bert_jax
from bert_jax.checkpoints.steps import latest_verified_step, list_steps
from bert_jax.config import DataConfig, PrepareConfig, PretrainConfig
from bert_jax.data.prepare import prepare
from bert_jax.data.records import Dataset
from bert_jax.runs.fitting import fit
from bert_jax.runs.pretraining import pretrain, resolve
from bert_jax.storage.manifest import DamagedError
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.training.faults import InterruptedRun
from bert_jax.training.report import Report


class CountingTask(PretrainingTask):
    """Counts how often its methods are traced; its batches do not use tf.data."""

    one_shape = False
    traces: ClassVar[collections.Counter[str]] = collections.Counter()

    def loss(self, *arguments: Any) -> Any:
        self.traces["loss"] += 1
        return super().loss(*arguments)

    def evaluate(self, *arguments: Any) -> Any:
        self.traces["evaluate"] += 1
        return super().evaluate(*arguments)


@pytest.fixture(scope="module")
def counting_run(
    small_config: PretrainConfig,
    dataset: Dataset,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The workdir of the small run, of a CountingTask."""
    config = resolve(small_config, dataset)
    workdir = tmp_path_factory.mktemp("counting")
    fit(CountingTask(config, dataset), config, workdir, dataset.tokenizer)
    return workdir


def test_the_step_is_traced_once(counting_run):
    """The loss for training; scores for the check of the objective and evaluation."""
    assert CountingTask.traces == {"loss": 1, "evaluate": 2}


def test_batches_do_not_depend_on_tf_data(counting_run, pretrained):
    assert_same_run(counting_run, pretrained)


def stop_at(step: int, patch: pytest.MonkeyPatch, number: int = signal.SIGTERM) -> None:
    """Send this process a signal when it reports the training line of `step`."""
    write = Report.write

    def write_and_stop(self: Report, now: int, split: str, *rest: Any) -> None:
        write(self, now, split, *rest)
        if now == step and split == "train":
            signal.raise_signal(number)

    patch.setattr(Report, "write", write_and_stop)


def test_training_learns_and_reports(pretrained):
    train = logged_lines(pretrained, "train")
    assert [line["step"] for line in train] == list(range(1, 11))
    validation = logged_lines(pretrained, "validation")
    assert [line["step"] for line in validation] == [5, 10]
    assert validation[1]["mlm_loss"] < validation[0]["mlm_loss"] < train[0]["mlm_loss"]
    assert validation[1]["mlm_perplexity"] == pytest.approx(
        np.exp(validation[1]["mlm_loss"])
    )
    names = "loss mlm_loss nsp_loss mlm_accuracy nsp_accuracy learning_rate grad_norm"
    assert set(names.split()) <= set(train[0])
    assert train[0]["learning_rate"] == 0.0


def test_a_task_must_compute_its_objective(small_config, dataset, tmp_path):
    """A user's mistake: one line, before the first step."""

    class UnknownLossTask(PretrainingTask):
        objective = ("mlm_loss", "other_loss")

    config = resolve(small_config, dataset)
    task = UnknownLossTask(config, dataset)
    with pytest.raises(
        ValueError, match="UnknownLossTask.evaluate returns .* and not other_loss"
    ):
        fit(task, config, tmp_path, dataset.tokenizer)
    assert not (tmp_path / "metrics.jsonl").read_text()


def test_a_task_that_cannot_be_trained_is_refused(small_config, dataset, tmp_path):
    """Before anything is written."""

    class ListTask(PretrainingTask):
        def init_params(self, key: Any) -> Any:
            return {"encoder": [jnp.zeros(2)]}

    class ArrayTask(PretrainingTask):
        def init_params(self, key: Any) -> Any:
            return {"head": jnp.zeros(2)}

    config, tokenizer = resolve(small_config, dataset), dataset.tokenizer
    frozen = config.changed(optimizer={"frozen_layers": 1})
    for task, settings, saved, message in (
        (ListTask, config, tokenizer, r"ListTask.init_params returns \{'encoder': \[S"),
        (ArrayTask, frozen, tokenizer, "frozen_layers=1 leaves nothing of this model"),
        (ArrayTask, config, None, "tokenizer=None must be a Tokenizer"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(task(config, dataset), settings, tmp_path, saved)
    assert not list(tmp_path.iterdir())
    scores = {"accuracy": 1.0}
    with pytest.raises(ValueError, match=r"ArrayTask.score returns accuracy and not l"):
        ArrayTask(config, dataset).selection_score(scores)


def test_a_run_of_ones_own_task_may_be_extended(counting_run, small_config, dataset):
    config = resolve(small_config, dataset)
    optimizer = dataclasses.replace(config.optimizer, peak_learning_rate=3e-3)
    config = dataclasses.replace(config, optimizer=optimizer)
    task = CountingTask(config, dataset)
    with pytest.raises(ValueError, match="to end or go on with these values, pass --"):
        fit(task, config, counting_run, dataset.tokenizer)
    assert fit(task, config, counting_run, dataset.tokenizer, extend=True)["loss"] > 0


def test_a_workdir_holds_what_it_should(pretrained, small_config):
    names = {path.name for path in pretrained.iterdir()}
    assert names == {
        "checkpoints",
        "config.json",
        "examples.jsonl",
        "metrics.jsonl",
        "tensorboard",
        "tokenizer",
    }
    # The newest two, and the best, which is the last here.
    assert list_steps(epath.Path(pretrained) / "checkpoints") == [10, 8]
    inside = {path.name for path in (pretrained / "checkpoints" / "10").iterdir()}
    assert {"state", "optimizer", "config.json", "tokenizer", "manifest.json"} <= inside


def test_examples_are_each_row_once_an_epoch(pretrained, dataset, small_config):
    lines = logged_lines(pretrained, name="examples.jsonl")
    rows = [line["rows"] for line in lines]
    assert len(rows) == 10 and all(len(r) == small_config.batch_size for r in rows)
    epoch = sum(rows, [])[: len(dataset.train)]
    assert len(set(epoch)) == len(epoch)


@pytest.mark.parametrize(
    "step", [4, *(pytest.param(step, marks=pytest.mark.slow) for step in (1, 7))]
)
def test_stopping_and_going_on_is_bit_identical(
    step, pretrained, small_config, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        stop_at(step, patch)
        with pytest.raises(InterruptedRun, match=f"SIGTERM at step {step}") as stop:
            pretrain(small_config, tmp_path)
    assert stop.value.exit_code == 143
    assert latest_verified_step(epath.Path(tmp_path) / "checkpoints") == (step, [])
    pretrain(small_config, tmp_path)
    assert_same_run(tmp_path, pretrained)


def test_a_damaged_newest_checkpoint_is_passed_over(
    pretrained, small_config, tmp_path, capsys
):
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    target = max(
        (path for path in (workdir / "checkpoints/10/state").rglob("*")),
        key=lambda path: path.stat().st_size if path.is_file() else 0,
    )
    content = bytearray(target.read_bytes())
    content[len(content) // 2] ^= 1
    target.write_bytes(content)
    with pytest.warns(UserWarning, match="Skipped a newer checkpoint: .*sha256"):
        bert_jax.load(workdir)
    with pytest.raises(DamagedError, match="another sha256"):
        bert_jax.load(workdir / "checkpoints" / "10")
    pretrain(small_config, workdir)
    assert "another sha256" in capsys.readouterr().out
    assert_same_run(workdir, pretrained)


def test_without_a_complete_checkpoint_no_run_starts_again(
    pretrained, small_config, tmp_path
):
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    for step in (8, 10):
        (workdir / "checkpoints" / str(step) / "config.json").unlink()
    with pytest.raises(
        DamagedError, match="No checkpoint in .* is complete: .*missing"
    ):
        pretrain(small_config, workdir)


def test_lost_manifests_do_not_start_a_run_again(pretrained, small_config, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    for path in (workdir / "checkpoints").glob("*/manifest.json"):
        path.unlink()
    with pytest.raises(DamagedError, match="No checkpoint in .* is complete"):
        pretrain(small_config, workdir)
    assert list_steps(epath.Path(workdir) / "checkpoints") == [10, 8]


def test_a_run_killed_in_its_first_saves_restarts(pretrained, small_config, tmp_path):
    """The first failed, and could not be removed either."""
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    for name in ("8/manifest.json", "8/config.json", "10/manifest.json"):
        (workdir / "checkpoints" / name).unlink()
    pretrain(small_config, workdir)
    assert_same_run(workdir, pretrained)


def test_another_configuration_is_refused(pretrained, small_config):
    other = dataclasses.replace(small_config, seed=1, batch_size=16)
    with pytest.raises(
        ValueError, match="batch_size was 8 and is 16; seed was 0 and is 1"
    ):
        pretrain(other, pretrained)


def test_loading_needs_nothing_but_the_checkpoint(pretrained, tmp_path):
    alone = tmp_path / "alone"
    shutil.copytree(pretrained / "checkpoints" / "10", alone)
    bert = bert_jax.load(alone)
    assert bert.config.num_hidden_layers == 1
    ids = jnp.full((1, 4), 5, jnp.int32)
    hidden = bert_jax.Encoder(bert.config).apply(
        {"params": bert.params["encoder"]}, ids, ids * 0, ids * 0 + 1
    )
    assert hidden.shape == (1, 4, 16) and jnp.isfinite(hidden).all()


@pytest.mark.slow
def test_without_validation_rows_training_goes_on(
    small_config, corpus, tokenizer_directory, tmp_path, capsys
):
    prepare(
        PrepareConfig(
            input=(str(corpus / "*.txt"),),
            tokenizer=str(tokenizer_directory),
            output=str(tmp_path / "data"),
            sequence_length=32,
            validation_fraction=0.0,
            workers=1,
        )
    )
    data = DataConfig(path=str(tmp_path / "data"), sequence_length=32)
    config = dataclasses.replace(small_config, data=data, num_steps=3)
    assert pretrain(config, tmp_path / "run") == {}
    assert "There are no validation rows" in capsys.readouterr().out
    assert [line["split"] for line in logged_lines(tmp_path / "run")] == ["train"] * 3


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_is_the_runs_failure(
    small_config, tmp_path, monkeypatch
):
    """The tokenizer's files, of which each checkpoint holds a copy, are removed."""
    write = Report.write

    def write_and_remove(self: Report, step: int, *arguments: Any) -> None:
        write(self, step, *arguments)
        if step == 2:
            shutil.rmtree(tmp_path / "tokenizer")

    monkeypatch.setattr(Report, "write", write_and_remove)
    config = dataclasses.replace(small_config, max_failed_saves=1)
    with pytest.raises(
        RuntimeError, match="step 4 could not be written: .*No such file.*failed_saves"
    ):
        pretrain(config, tmp_path)
    assert not (tmp_path / "checkpoints" / "4").exists()


def test_a_last_score_that_cannot_be_saved_is_said(
    pretrained, small_config, dataset, tmp_path, capsys
):
    """The best checkpoint is chosen by the scores in the manifests."""
    shutil.copytree(pretrained, run := tmp_path / "run")
    *lines, _ = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines))  # its evaluation is missing

    class DamagingTask(PretrainingTask):
        def selection_score(self, scores: dict[str, float]) -> float:
            (run / "checkpoints" / "10" / "manifest.json").write_text("{")
            return super().selection_score(scores)

    config = resolve(small_config, dataset)
    fit(DamagingTask(config, dataset), config, run, dataset.tokenizer)
    assert "The score of step 10 was not saved: " in capsys.readouterr().out


def test_the_baseline_of_a_finished_run_is_of_the_rows_that_were_scored(
    pretrained, small_config, tmp_path, capsys
):
    shutil.copytree(pretrained, tmp_path / "run")
    scores = pretrain(small_config, tmp_path / "run")
    assert "unigram_loss" in scores
    fewer = dataclasses.replace(small_config, eval_rows=1)
    assert pretrain(fewer, tmp_path / "run") == scores
    rows = small_config.eval_rows
    assert f"its scores are of eval_rows={rows}." in capsys.readouterr().out
