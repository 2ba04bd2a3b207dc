"""Whole runs: resumed ones equal uninterrupted ones bit for bit, on 1 to 8 devices."""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

import bert_jax
from bert_jax.checkpoints.manager import Checkpoints
from bert_jax.checkpoints.restore import read_params
from bert_jax.checkpoints.steps import find_checkpoint, latest_verified_step, list_steps
from bert_jax.config import (
    DataConfig,
    MeshConfig,
    OptimizerConfig,
    PrepareConfig,
    PretrainConfig,
)
from bert_jax.config.serialization import to_dict
from bert_jax.data.prepare import prepare
from bert_jax.distributed.mesh import make_mesh
from bert_jax.runs.fitting import fit
from bert_jax.runs.pretraining import pretrain, resolve
from bert_jax.storage.manifest import DamagedError
from bert_jax.tasks import pretraining
from bert_jax.training import loop
from bert_jax.training.faults import InterruptedRun
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.report import Report
from bert_jax.training.start import starting_state

RATES = ("tokens_per_second", "data_wait", "mfu")


def metrics(workdir: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what a clock says."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if k not in RATES} for line in lines
    ]


def final_params(workdir: Path) -> list[np.ndarray]:
    step, _ = latest_verified_step(epath.Path(workdir) / "checkpoints")
    return jax.tree.leaves(read_params(epath.Path(workdir) / "checkpoints" / str(step)))


def assert_same_run(one: Path, other: Path) -> None:
    assert metrics(one) == metrics(other)
    for a, b in zip(final_params(one), final_params(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def traces() -> dict[str, int]:
    return {}


@pytest.fixture(scope="module")
def whole(
    small_config: PretrainConfig,
    tmp_path_factory: pytest.TempPathFactory,
    traces: dict[str, int],
) -> Path:
    """The small run, never stopped; counts how often its losses are traced."""
    workdir = tmp_path_factory.mktemp("whole")
    losses = pretraining.pretraining_losses

    def counted(*arguments: Any) -> Any:
        traces["losses"] = traces.get("losses", 0) + 1
        return losses(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretraining, "pretraining_losses", counted)
        pretrain(dataclasses.replace(small_config, log_examples=True), workdir)
    return workdir


def stop_at(step: int, patch: pytest.MonkeyPatch, number: int = signal.SIGTERM) -> None:
    """Send this process a signal when it reports the training line of `step`."""
    write = Report.write

    def write_and_stop(self: Report, now: int, split: str, scalars: Any) -> None:
        write(self, now, split, scalars)
        if now == step and split == "train":
            signal.raise_signal(number)

    patch.setattr(Report, "write", write_and_stop)


def test_training_learns_and_reports(whole):
    lines = metrics(whole)
    train = [line for line in lines if line["split"] == "train"]
    assert [line["step"] for line in train] == list(range(1, 11))
    validation = [line for line in lines if line["split"] == "validation"]
    assert [line["step"] for line in validation] == [5, 10]
    assert validation[1]["mlm_loss"] < validation[0]["mlm_loss"] < train[0]["mlm_loss"]
    assert validation[1]["mlm_perplexity"] == pytest.approx(
        np.exp(validation[1]["mlm_loss"])
    )
    names = "loss mlm_loss nsp_loss mlm_accuracy nsp_accuracy learning_rate grad_norm"
    assert set(names.split()) <= set(train[0])
    assert train[0]["learning_rate"] == 0.0


def test_the_step_is_traced_once(whole, traces):
    """Once for the check of the objective, once for training and once for evaluation,
    whatever the number of steps."""
    assert traces == {"losses": 3}


def test_a_task_must_compute_its_objective(small_config, dataset, tmp_path):
    """A user's mistake: one line, before the first step."""

    class UnknownLossTask(pretraining.PretrainingTask):
        objective = ("mlm_loss", "other_loss")

    config = resolve(small_config, dataset)
    task = UnknownLossTask(config, dataset)
    with pytest.raises(
        ValueError, match="UnknownLossTask.evaluate returns .* and not other_loss"
    ):
        fit(task, config, tmp_path, dataset.tokenizer)
    assert not (tmp_path / "metrics.jsonl").read_text()


def test_a_workdir_holds_what_it_should(whole, small_config):
    names = {path.name for path in whole.iterdir()}
    assert names == {
        "checkpoints",
        "config.json",
        "examples.jsonl",
        "metrics.jsonl",
        "tensorboard",
        "tokenizer",
    }
    # The newest two, and the best, which is the last here.
    assert list_steps(epath.Path(whole) / "checkpoints") == [10, 8]
    inside = {path.name for path in (whole / "checkpoints" / "10").iterdir()}
    assert {"state", "optimizer", "config.json", "tokenizer", "manifest.json"} <= inside


def test_examples_are_each_row_once_an_epoch(whole, dataset, small_config):
    lines = (whole / "examples.jsonl").read_text().splitlines()
    rows = [json.loads(line)["rows"] for line in lines]
    assert len(rows) == 10 and all(len(r) == small_config.batch_size for r in rows)
    epoch = sum(rows, [])[: len(dataset.train)]
    assert len(set(epoch)) == len(epoch)


@pytest.mark.parametrize(
    "step", [4, *(pytest.param(step, marks=pytest.mark.slow) for step in (1, 7))]
)
def test_stopping_and_going_on_is_bit_identical(
    step, whole, small_config, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        stop_at(step, patch)
        with pytest.raises(InterruptedRun, match=f"SIGTERM at step {step}") as stop:
            pretrain(small_config, tmp_path)
    assert stop.value.exit_code == 143
    assert latest_verified_step(epath.Path(tmp_path) / "checkpoints") == (step, [])
    pretrain(small_config, tmp_path)
    assert_same_run(whole, tmp_path)


KILLED = """
import json, os, signal, sys, time
from bert_jax.config import PretrainConfig
from bert_jax.config.serialization import from_dict
from bert_jax.runs.pretraining import pretrain
from bert_jax.training.report import Report
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.start import starting_state

write = Report.write

def write_and_die(self, step, split, scalars):
    write(self, step, split, scalars)
    if step == 7 and split == "train":
        self._metrics.write('{"step": 8, "spl')  # a torn line, as a crash leaves it
        self._metrics.flush()
        while not os.path.exists(sys.argv[2] + "/checkpoints/4/manifest.json"):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)

Report.write = write_and_die
pretrain(from_dict(PretrainConfig, json.loads(sys.argv[1])), sys.argv[2])
"""


def test_a_killed_run_goes_on_bit_identically(whole, small_config, tmp_path, capsys):
    command = [sys.executable, "-c", KILLED, json.dumps(to_dict(small_config))]
    killed = subprocess.run([*command, str(tmp_path)], capture_output=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text.endswith('{"step": 8, "spl')
    assert latest_verified_step(epath.Path(tmp_path) / "checkpoints") == (4, [])
    pretrain(small_config, tmp_path)
    assert "Resuming from the checkpoint at step 4" in capsys.readouterr().out
    assert_same_run(whole, tmp_path)


def test_a_damaged_newest_checkpoint_is_passed_over(
    whole, small_config, tmp_path, capsys
):
    workdir = tmp_path / "run"
    shutil.copytree(whole, workdir)
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
    assert_same_run(whole, workdir)


def test_when_no_checkpoint_is_whole_nothing_starts_afresh(
    whole, small_config, tmp_path
):
    workdir = tmp_path / "run"
    shutil.copytree(whole, workdir)
    for step in (8, 10):
        (workdir / "checkpoints" / str(step) / "config.json").unlink()
    with pytest.raises(
        DamagedError, match="No checkpoint in .* is complete: .*missing"
    ):
        pretrain(small_config, workdir)


def test_lost_manifests_do_not_start_a_run_afresh(whole, small_config, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(whole, workdir)
    for path in (workdir / "checkpoints").glob("*/manifest.json"):
        path.unlink()
    with pytest.raises(DamagedError, match="No checkpoint in .* is complete"):
        pretrain(small_config, workdir)
    assert list_steps(epath.Path(workdir) / "checkpoints") == [10, 8]


def test_a_run_killed_in_its_first_save_starts_again(whole, small_config, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(whole, workdir)
    shutil.rmtree(workdir / "checkpoints" / "10")
    (workdir / "checkpoints" / "8" / "manifest.json").unlink()
    pretrain(small_config, workdir)
    assert_same_run(whole, workdir)


def test_a_finished_run_is_left_as_it_is(whole, small_config, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(whole, workdir)
    pretrain(small_config, workdir)
    assert_same_run(whole, workdir)


def test_another_configuration_is_refused(whole, small_config):
    other = dataclasses.replace(small_config, seed=1, batch_size=16)
    with pytest.raises(
        ValueError, match="batch_size was 8 and is 16; seed was 0 and is 1"
    ):
        pretrain(other, whole)


def assert_nearly_same_run(one: Path, other: Path) -> None:
    """Within float32's noise: sums over devices are taken in another order."""
    for line, other_line in zip(metrics(one), metrics(other), strict=True):
        assert line.pop("split") == other_line.pop("split")
        assert other_line == pytest.approx(line, rel=2e-4, abs=1e-6), line["step"]


@pytest.fixture(scope="module")
def without_dropout(
    small_config: PretrainConfig, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PretrainConfig, Path]:
    """The small run again; each device would draw dropout of its own."""
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = dataclasses.replace(small_config.model, **rates)
    config = dataclasses.replace(small_config, model=model)
    pretrain(config, workdir := tmp_path_factory.mktemp("without_dropout"))
    return config, workdir


def test_devices_agree_with_one(without_dropout, tmp_path):
    config, workdir = without_dropout
    pretrain(dataclasses.replace(config, mesh=MeshConfig(data=8)), tmp_path)
    assert_nearly_same_run(workdir, tmp_path)


def test_a_run_goes_on_with_other_devices(without_dropout, tmp_path, monkeypatch):
    """Begun on one, ended on eight that share the parameters, in two microbatches."""
    config, workdir = without_dropout
    with monkeypatch.context() as patch:
        stop_at(7, patch)
        with pytest.raises(InterruptedRun):
            pretrain(config, tmp_path)
    mesh = MeshConfig(data=1, fsdp=4)
    pretrain(dataclasses.replace(config, mesh=mesh, microbatches=2), tmp_path)
    assert_nearly_same_run(workdir, tmp_path)


def test_evaluation_does_not_depend_on_the_batch_size(whole, small_config, dataset):
    """Every validation row counts once, and its masks are its own."""
    assert len(dataset.validation) % 8, "the last batch must be a ragged one"
    found = []
    for batch_size in (3, 8, 16):
        config = bert_jax.runs.pretraining.resolve(
            dataclasses.replace(small_config, batch_size=batch_size), dataset
        )
        task = pretraining.PretrainingTask(config, dataset)
        params = read_params(epath.Path(whole) / "checkpoints" / "10")
        totals: dict[str, np.ndarray] = {}
        evaluate = jax.jit(task.evaluate)
        for batch in task.evaluation_batches():
            for name, sums in evaluate(params, batch)[0].items():
                totals[name] = totals.get(name, 0) + np.array(sums, np.float64)
        found.append(totals)
    assert found[0]["nsp_loss"][1] == len(dataset.validation)
    for totals in found[1:]:
        for name, sums in totals.items():
            np.testing.assert_allclose(sums, found[0][name], rtol=1e-5)


def test_the_second_phase_counts_on(whole, small_config, tmp_path):
    """Parameters, moments, step and schedule go on; the order of rows begins anew."""
    longer = OptimizerConfig(peak_learning_rate=1e-2, warmup_steps=2, decay_steps=14)
    first = dataclasses.replace(small_config, optimizer=longer)
    pretrain(first, tmp_path / "first")
    second = dataclasses.replace(
        first,
        checkpoint_every=2,
        num_steps=14,
        init_from=str(tmp_path / "first"),
        keep_optimizer=True,
        log_examples=True,
    )
    pretrain(second, tmp_path / "second")
    train = [x for x in metrics(tmp_path / "second") if x["split"] == "train"]
    assert [line["step"] for line in train] == [11, 12, 13, 14]
    rates = [line["learning_rate"] for line in train]
    np.testing.assert_allclose(rates, np.array([4, 3, 2, 1]) / 12 * 1e-2, rtol=1e-5)
    # With checkpoints of its own, the second phase needs the first no more.
    shutil.rmtree(tmp_path / "first")
    shutil.rmtree(tmp_path / "second" / "checkpoints" / "14")
    pretrain(second, tmp_path / "second")
    assert [x for x in metrics(tmp_path / "second") if x["split"] == "train"] == train
    rows = (tmp_path / "second" / "examples.jsonl").read_text().splitlines()
    original = (whole / "examples.jsonl").read_text().splitlines()
    assert json.loads(rows[0])["rows"] == json.loads(original[0])["rows"]


def test_a_phase_of_longer_rows_begins_with_the_whole_state(
    small_config, corpus, tokenizer_directory, tmp_path
):
    """As from 128 tokens to 512: parameters, moments, schedule, step and key."""
    prepare(
        PrepareConfig(
            input=(str(corpus / "*.txt"),),
            tokenizer=str(tokenizer_directory),
            output=str(tmp_path / "long"),
            sequence_length=64,
            workers=1,
        )
    )
    model = dataclasses.replace(small_config.model, max_position_embeddings=64)
    schedule = dataclasses.replace(small_config.optimizer, decay_steps=8)
    first = dataclasses.replace(
        small_config, model=model, optimizer=schedule, num_steps=6
    )
    pretrain(first, tmp_path / "first")
    second = dataclasses.replace(
        first,
        data=DataConfig(path=str(tmp_path / "long"), sequence_length=64),
        num_steps=8,
        init_from=str(tmp_path / "first"),
        keep_optimizer=True,
    )
    source, _ = find_checkpoint(epath.Path(tmp_path / "first"))
    dataset, resolved = bert_jax.runs.pretraining.open_for(second)
    task = pretraining.PretrainingTask(resolved, dataset)
    mesh = make_mesh(second.mesh, second.batch_size)
    none_of_its_own = Checkpoints(
        epath.Path(tmp_path / "none"), 1, {}, dataset.path / "tokenizer"
    )
    state, _ = starting_state(
        task, Optimizer.of(second), second, mesh, none_of_its_own, source, None
    )
    none_of_its_own.close()
    assert int(state.step) == int(state.opt_state[-1].count) == 6
    moments = state.opt_state[0]
    assert int(moments.count) == 6
    written = final_params(tmp_path / "first")
    for leaf, kept in zip(jax.tree.leaves(state.params), written, strict=True):
        np.testing.assert_array_equal(leaf, kept)
    for moment in (moments.mu, moments.nu):
        assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(moment))
    pretrain(second, tmp_path / "second")
    train = [x for x in metrics(tmp_path / "second") if x["split"] == "train"]
    rates = [line["learning_rate"] for line in train]
    np.testing.assert_allclose(rates, np.array([2, 1]) / 6 * 1e-2, rtol=1e-5)


def test_the_loop_reads_through_tf_data(whole, small_config, tmp_path, monkeypatch):
    """And without TensorFlow the very same batches come from the plain iterator."""
    kinds = []
    original = loop.stream

    def noting(*arguments: Any, **options: Any) -> Any:
        found = original(*arguments, **options)
        kinds.append(found.gi_code.co_name)
        return found

    monkeypatch.setattr(loop, "stream", noting)
    pretrain(small_config, tmp_path / "one")
    monkeypatch.setattr(loop, "stream", lambda *a: original(*a[:3], False))
    pretrain(small_config, tmp_path / "other")
    assert kinds == ["_tensorflow_stream"]
    assert_same_run(tmp_path / "one", tmp_path / "other")


def test_loading_needs_nothing_but_the_checkpoint(whole, tmp_path):
    alone = tmp_path / "alone"
    shutil.copytree(whole / "checkpoints" / "10", alone)
    bert = bert_jax.load(alone)
    assert bert.config.num_hidden_layers == 1
    ids = jnp.full((1, 4), 5, jnp.int32)
    hidden = bert_jax.Encoder(bert.config).apply(
        {"params": bert.params["encoder"]}, ids, ids * 0, ids * 0 + 1
    )
    assert hidden.shape == (1, 4, 16) and jnp.isfinite(hidden).all()


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
    assert [line["split"] for line in metrics(tmp_path / "run")] == ["train"] * 3


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
