"""Callbacks: when they are called, and what an exception of one does."""

import dataclasses
import json
import signal
import time
from pathlib import Path

import pytest
from etils import epath
from run_helpers import assert_same_run, logged_lines

import bert_jax
from bert_jax.config import PretrainConfig
from bert_jax.runs.pretraining import pretrain
from bert_jax.training.callbacks import Callbacks
from bert_jax.training.faults import InterruptedRun


@pytest.fixture(scope="module")
def config(small_config: PretrainConfig) -> PretrainConfig:
    every = {"log_every": 1, "eval_every": 2, "checkpoint_every": 2}
    return dataclasses.replace(small_config, num_steps=4, keep_checkpoints=4, **every)


class Recorder(bert_jax.Callback):
    """Records the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, object]] = []

    def on_log(self, step, scalars):
        self.calls.append(("log", step, dict(scalars)))

    def on_evaluation(self, step, scores):
        self.calls.append(("evaluation", step, dict(scores)))

    def on_checkpoint(self, step, path):
        manifest = json.loads((Path(path) / "manifest.json").read_text())
        assert manifest["step"] == step
        self.calls.append(("checkpoint", step, path))

    def of(self, kind: str) -> list[tuple[int, object]]:
        return [(step, value) for name, step, value in self.calls if name == kind]


@pytest.fixture(scope="module")
def recorded(config, tmp_path_factory) -> tuple[Recorder, Path]:
    recorder, workdir = Recorder(), tmp_path_factory.mktemp("recorded") / "run"
    pretrain(config, workdir, callbacks=[recorder])
    return recorder, workdir


def test_what_one_removes_from_the_scores_is_there_for_the_others_and_the_run():
    class Clears(bert_jax.Callback):
        def on_log(self, step, scalars):
            scalars.clear()

        on_evaluation = on_log

    recorder, scores = Recorder(), {"loss": 1.0}
    callbacks = Callbacks([Clears(), recorder])
    callbacks.on_log(1, scores)
    callbacks.on_evaluation(1, scores)
    kinds = "log", "evaluation"
    assert recorder.calls == [(kind, 1, {"loss": 1.0}) for kind in kinds]
    assert scores == {"loss": 1.0}


def test_they_get_the_lines_of_the_log_and_complete_checkpoints(recorded):
    recorder, workdir = recorded
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    for kind, split in (("log", "train"), ("evaluation", "validation")):
        written = [json.loads(line) for line in lines]
        expected = [
            (line.pop("step"), {k: v for k, v in line.items() if k != "split"})
            for line in written
            if line["split"] == split
        ]
        assert recorder.of(kind) == expected and expected
    checkpoints = recorder.of("checkpoint")
    assert [step for step, _ in checkpoints] == [2, 4]
    assert [path for _, path in checkpoints] == [
        epath.Path(workdir) / "checkpoints" / str(step) for step in (2, 4)
    ]


def test_they_get_the_checkpoint_with_which_a_signal_ends_the_run(config, tmp_path):
    class Stopped(Recorder):
        def on_log(self, step, scalars):
            if step == 3:
                signal.raise_signal(signal.SIGTERM)

    recorder = Stopped()
    with pytest.raises(InterruptedRun, match="at step 3, with a checkpoint"):
        pretrain(config, tmp_path / "run", callbacks=[recorder])
    assert [step for step, _ in recorder.of("checkpoint")] == [2, 3]


def test_a_checkpoint_is_there_when_they_get_it(config, tmp_path):
    """Also the only one that is kept, where the next is complete at their call."""

    class Late(Recorder):
        def on_evaluation(self, step, scores):
            while (tmp_path / "run" / "checkpoints" / str(step - 1)).exists():
                time.sleep(0.01)

    recorder, each = Late(), {"keep_checkpoints": 1, "checkpoint_every": 1}
    pretrain(
        dataclasses.replace(config, num_steps=2, **each),
        tmp_path / "run",
        callbacks=[recorder],
    )
    assert [step for step, _ in recorder.of("checkpoint")] == [1, 2]


@pytest.mark.slow
def test_a_run_without_callbacks_is_the_same(recorded, config, tmp_path):
    pretrain(config, tmp_path / "plain")
    assert_same_run(recorded[1], tmp_path / "plain")


class Broken(bert_jax.Callback):
    def on_evaluation(self, step, scores):
        raise OSError("no\nroute to host")


class Strict(Broken):
    stop_on_error = True


@pytest.mark.slow
def test_the_run_goes_on_after_an_exception(recorded, config, tmp_path, capsys):
    recorder = Recorder()
    pretrain(config, tmp_path / "run", callbacks=[Broken(), recorder])
    printed = capsys.readouterr().err
    for step in (2, 4):
        line = f"The callback Broken failed at step {step}, and the run goes on: "
        assert f"{line}OSError: no route to host.\n" in printed
    assert [step for step, _ in recorder.of("evaluation")] == [2, 4]
    assert_same_run(tmp_path / "run", recorded[1])


@pytest.mark.usefixtures("unchecked_types")
def test_a_class_in_place_of_an_object_is_refused_before_the_run(config, tmp_path):
    with pytest.raises(TypeError, match="Recorder.*pass an object of a class"):
        pretrain(config, tmp_path / "run", callbacks=[Recorder])
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.slow
def test_an_exception_can_end_the_run(recorded, config, tmp_path):
    with pytest.raises(RuntimeError, match="callback Strict failed at step 2: OSErr"):
        pretrain(config, tmp_path / "run", callbacks=[Strict()])
    assert [line["step"] for line in logged_lines(tmp_path / "run", "train")] == [1, 2]
    pretrain(config, tmp_path / "run")
    assert_same_run(tmp_path / "run", recorded[1])
