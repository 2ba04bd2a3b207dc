"""The best evaluation so far, and runs that stop when it no longer improves."""

import dataclasses
import math

import pytest
from run_helpers import assert_same_run, logged_lines

from bert_jax.runs.pretraining import pretrain
from bert_jax.training.best_score import BestScore


def test_the_last_of_equal_scores_is_the_best_but_no_gain():
    best = BestScore()
    assert best.note(0) == ""
    found = []
    for step, score in enumerate([math.nan, 1.0, 3.0, 2.0, 3.0, math.nan, 4.0]):
        best.add(step, score)
        found.append((best.step, best.num_without_gain))
    assert found == [(-1, 1), (1, 0), (2, 0), (2, 1), (4, 2), (4, 3), (6, 0)]
    assert (best.note(6), best.note(7)) == ("best so far", "best: step 6")


@pytest.fixture(scope="module")
def stubborn(small_config):
    """A run whose first evaluation is its best: the rate is far too high after it."""
    optimizer = dataclasses.replace(
        small_config.optimizer, peak_learning_rate=5.0, warmup_steps=1
    )
    return dataclasses.replace(
        small_config, optimizer=optimizer, eval_every=2, checkpoint_every=3, patience=2
    )


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
    assert f"Stopped at step {step}: 2 evaluations in a row without" in printed
    assert f"than at step {best} (patience)." in printed
    assert f"best: step {best}" in printed
    # The same command ends at once, with the same scores.
    files = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert pretrain(stubborn, tmp_path / "run") == scores
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == files


def test_patience_changes_no_step_before(stubborn, tmp_path):
    """Without patience, the run goes on from where it stopped as if it never had."""
    pretrain(stubborn, tmp_path / "patient")
    without = dataclasses.replace(stubborn, patience=0)
    pretrain(without, tmp_path / "patient")
    pretrain(without, tmp_path / "never")
    assert_same_run(tmp_path / "patient", tmp_path / "never")
