"""The best evaluation so far, and runs that stop when it no longer improves."""

import dataclasses
import math
import signal

import pytest
from run_helpers import assert_same_run, logged_lines

import bert_jax
from bert_jax.apps.run_page.run_record import progress, read_run_record
from bert_jax.runs.pretraining import pretrain
from bert_jax.training.best_score import BestScore
from bert_jax.training.faults import InterruptedRun


def test_the_last_of_equal_scores_is_the_best_but_no_gain():
    best = BestScore()
    best.add(0, 9.0)  # the model before training
    assert best.note(0) == ""
    found = []
    for step, score in enumerate([math.nan, 1.0, 3.0, 2.0, 3.0, math.nan, 4.0], 1):
        best.add(step, score)
        found.append((best.step, best.num_without_gain))
        if step == 5:
            assert best.note(5) == "as good as step 3"
    assert found == [(-1, 1), (2, 0), (3, 0), (3, 1), (5, 2), (5, 3), (7, 0)]
    assert (best.note(7), best.note(8)) == ("best so far", "best: step 7")


def test_why_a_run_ends():
    best = BestScore()
    for step in (1, 2):
        best.add(step, math.nan)
    assert best.why_stopped() == "2 evaluations had no finite score"
    for step in (3, 4, 5):
        best.add(step, 0.8)
    assert best.step == 5
    assert (
        best.why_stopped()
    ) == "2 evaluations in a row had no higher score than that of step 3"


@pytest.mark.slow
def test_patience_that_is_lost_at_a_resume_has_scores(small_config, tmp_path):
    """Between two evaluations, by a later `--patience`."""
    config = dataclasses.replace(small_config, eval_every=2, checkpoint_every=3)
    optimizer = dataclasses.replace(config.optimizer, peak_learning_rate=5.0)
    config = dataclasses.replace(config, optimizer=optimizer)

    class Stop(bert_jax.Callback):
        def on_log(self, step, scalars):
            if step == 7:
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(InterruptedRun, match="at step 7"):
        pretrain(config, tmp_path, callbacks=[Stop()])
    losses = [line["loss"] for line in logged_lines(tmp_path, "validation")]
    assert len(losses) == 3 and losses[2] > min(losses)
    scores = pretrain(dataclasses.replace(config, patience=1), tmp_path)
    assert logged_lines(tmp_path, "validation")[-1]["step"] == 7
    assert scores["loss"] == logged_lines(tmp_path, "validation")[-1]["loss"]


@pytest.fixture(scope="module")
def stubborn(small_config):
    """A run whose first evaluation is its best: the rate is far too high after it."""
    optimizer = dataclasses.replace(
        small_config.optimizer, peak_learning_rate=5.0, warmup_steps=1
    )
    return dataclasses.replace(
        small_config, optimizer=optimizer, eval_every=2, checkpoint_every=3, patience=2
    )


@pytest.mark.slow
def test_a_run_stops_after_evaluations_without_a_gain(stubborn, tmp_path, capsys):
    scores = pretrain(stubborn, tmp_path / "run")
    lines = logged_lines(tmp_path / "run", "validation")
    losses = [line["loss"] for line in lines]
    gains = [i for i in range(len(losses)) if losses[i] < min(losses[:i], default=9e9)]
    last = gains[-1] + stubborn.patience
    assert len(losses) == last + 1 < 5, losses
    assert scores["loss"] == losses[-1]
    printed = capsys.readouterr().out
    step, best = lines[-1]["step"], lines[gains[-1]]["step"]
    assert f"Ended at step {step} of 10: 2 evaluations in a row had no" in printed
    assert f"that of step {best}. To train on, raise --patience." in printed
    assert f"best: step {best}" in printed
    # So does its report: not that the same command resumes it.
    assert progress(read_run_record(str(tmp_path / "run"))) == (
        f"Ended at step {step} of 10: 2 evaluations in a row had no higher score than "
        f"that of step {best}. To train on, raise --patience."
    )
    # The same command ends at once, with the same scores.
    files = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert pretrain(stubborn, tmp_path / "run") == scores
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == files
    # Without its optimizer's state, too; but it cannot go on.
    dropped = dataclasses.replace(stubborn, keep_optimizer_states="none")
    for config in (dropped, stubborn):
        assert pretrain(config, tmp_path / "run") == scores
    with pytest.raises(ValueError, match="cannot go on; start another run from it"):
        pretrain(dataclasses.replace(stubborn, patience=3), tmp_path / "run")


@pytest.mark.slow
def test_patience_changes_no_step_before(stubborn, tmp_path):
    """Without patience, the run goes on from where it stopped as if it never had."""
    pretrain(stubborn, tmp_path / "patient")
    without = dataclasses.replace(stubborn, patience=0)
    pretrain(without, tmp_path / "patient")
    pretrain(without, tmp_path / "never")
    assert_same_run(tmp_path / "patient", tmp_path / "never")
