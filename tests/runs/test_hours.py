"""A run of some hours: its steps, its schedule, and what a second call does."""

import dataclasses
import json
import math
from types import SimpleNamespace

import pytest
from etils import epath
from run_helpers import assert_same_run

from bert_jax.config import MeshConfig, OptimizerConfig
from bert_jax.runs import hours
from bert_jax.runs.fitting import Workdir
from bert_jax.runs.pretraining import open_for, pretrain, resolve_run

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


def test_the_evaluation_after_the_last_step_counts(small_config, monkeypatch):
    """1,000 rows in batches of 8 take as long as 41.7 steps, once in 360."""
    monkeypatch.setattr(hours, "_seconds_a_step", lambda run, seconds: (0.1, 10))
    config = dataclasses.replace(small_config, eval_every=10_000, eval_rows=0)
    run = SimpleNamespace(config=config, resume=None)
    assert hours.config_for_hours(run, 0.01, 1000).num_steps == 320
    says = r"a step, which takes 0.1 s here, and the evaluation at the end, 4.17 s; giv"
    with pytest.raises(ValueError, match=f"hours=0.001 is too short for {says}"):
        hours.config_for_hours(run, 0.001, 1000)


def test_a_warm_up_that_meets_the_decay_ends_there(small_config):
    """Half of 11 steps is 6, rounded, and so is the decay."""
    optimizer = OptimizerConfig("muon", 1e-3, "constant", 50, decay_share=0.5)
    config = dataclasses.replace(small_config, num_steps=100, optimizer=optimizer)
    assert hours.with_steps(config, 11).optimizer.phases(11) == (5, 5)
    assert hours.with_steps(config, 12).optimizer.phases(12) == (6, 6)


def test_hours_set_the_length_of_a_second_phase(
    small_config, pretrained, tmp_path, monkeypatch, capsys
):
    """Whatever steps the configuration has, of which the first phase took all."""
    monkeypatch.setattr(hours, "_seconds_a_step", lambda run, seconds: (0.1, 10))
    optimizer = OptimizerConfig(warmup_steps=0, warmup_share=0.1)
    config = dataclasses.replace(
        small_config, init_from=str(pretrained), keep_optimizer=True, eval_every=1000
    )
    config = dataclasses.replace(config, optimizer=optimizer)
    dataset, config = open_for(config)
    new = Workdir(epath.Path(tmp_path), None)
    run, _ = resolve_run(config, dataset, new, hours=1 / 3600)
    assert run.config.data.first_step == 10 < run.config.num_steps
    warmup = round(0.1 * run.config.num_steps)
    assert f"warm-up takes {warmup}." in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"num_steps=10 but .* is at step 10 already"):
        resolve_run(config, dataset, new)
    with pytest.raises(ValueError, match="hours=1.0 is of a run's start"):
        pretrain(config, tmp_path / "run", extend=True, hours=1.0)
    for wrong in ("2", math.inf):
        with pytest.raises(ValueError, match=rf"hours={wrong!r} must be finite and g"):
            pretrain(config, tmp_path / "run", hours=wrong)


def test_no_process_measures_where_another_has_an_error(
    small_config, tmp_path, monkeypatch, another_fails
):
    """It would wait for that one in the first step, without an end."""
    measured = []
    monkeypatch.setattr(hours, "_seconds_a_step", lambda *_: measured.append(1))
    dataset, config = open_for(dataclasses.replace(small_config, mesh=MeshConfig()))
    new = Workdir(epath.Path(tmp_path), None)
    with pytest.raises(ValueError, match="^Process 1 of 2: nothere is gone"):
        resolve_run(config, dataset, new, hours=1.0)
    assert not measured


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
