"""A run of some hours: its steps, its schedule, and what a second call does."""

import dataclasses
import json
from types import SimpleNamespace

import pytest
from run_helpers import assert_same_run

from bert_jax.config import OptimizerConfig
from bert_jax.runs import hours
from bert_jax.runs.pretraining import pretrain

HALF_A_SECOND = 0.5 / 3600


def test_a_run_takes_the_steps_that_its_hours_hold(small_config, tmp_path, capsys):
    config = dataclasses.replace(
        small_config,
        num_steps=1000,
        optimizer=OptimizerConfig(warmup_steps=100, decay_steps=2000),
        log_every=1000,
        eval_every=1000,
        checkpoint_every=1000,
    )
    scores = pretrain(config, tmp_path / "run", hours=HALF_A_SECOND)
    first = capsys.readouterr().out
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    steps, optimizer = written["num_steps"], written["optimizer"]
    assert 1 <= steps <= 2000 and steps == float(f"{steps:.2g}")
    assert f"hours: {steps:,} steps of " in first
    assert optimizer["warmup_steps"] == round(steps / 10)
    assert optimizer["decay_steps"] == 2 * steps
    # The run is finished: any hours find it as it is.
    assert pretrain(config, tmp_path / "run", hours=7.0) == scores
    assert "hours:" not in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"hours=1e-09 is too short .* give more"):
        pretrain(config, tmp_path / "short", hours=1e-9)
    assert not (tmp_path / "short" / "config.json").exists()


def test_an_evaluation_takes_the_rows_that_it_scores(small_config, monkeypatch):
    monkeypatch.setattr(hours, "_seconds_a_step", lambda run, seconds: (0.1, 10))
    config = dataclasses.replace(small_config, eval_every=1, eval_rows=8)
    run = SimpleNamespace(config=config, resume=None)
    few = hours.config_for_hours(run, 0.1, 1000).num_steps
    assert few == 2700  # 3,600 steps' seconds, a third more for the evaluations
    run.config = dataclasses.replace(config, eval_rows=0)
    assert hours.config_for_hours(run, 0.1, 1000).num_steps == 84


@pytest.mark.slow
def test_it_is_the_run_of_that_many_steps(small_config, tmp_path):
    config = dataclasses.replace(
        small_config, eval_every=1000, checkpoint_every=1000, log_examples=False
    )
    pretrain(config, tmp_path / "run", hours=HALF_A_SECOND)
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    optimizer = dataclasses.replace(
        config.optimizer, warmup_steps=written["optimizer"]["warmup_steps"]
    )
    same = dataclasses.replace(
        config, num_steps=written["num_steps"], optimizer=optimizer
    )
    pretrain(same, tmp_path / "same")
    assert_same_run(tmp_path / "run", tmp_path / "same")
