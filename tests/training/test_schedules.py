"""Runs whose learning rate or masking rate changes with the step."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from run_helpers import assert_same_run, logged_lines, write_config

from bert_jax.cli.main import main
from bert_jax.config import MaskingConfig, MeshConfig, PretrainConfig
from bert_jax.data.records import Dataset
from bert_jax.runs.pretraining import pretrain, resolve
from bert_jax.tasks.pretraining.task import PretrainingTask


def with_optimizer(config: PretrainConfig, **options: Any) -> PretrainConfig:
    optimizer = dataclasses.replace(config.optimizer, **options)
    return dataclasses.replace(config, optimizer=optimizer)


def with_masking(config: PretrainConfig, **options: Any) -> PretrainConfig:
    return dataclasses.replace(config, masking=MaskingConfig(**options))


def command(config: PretrainConfig, folder: Path, *options: str) -> int:
    """Run `pretrain` of a configuration file on the command line."""
    path = write_config(config, folder / "config.py")
    return main(["pretrain", str(path), "--workdir", str(folder / "run"), *options])


def learning_rates(workdir: Path) -> list[float]:
    return [line["learning_rate"] for line in logged_lines(workdir, "train")]


@pytest.fixture(scope="module")
def constant(small_config: PretrainConfig) -> PretrainConfig:
    """Ten steps; the warm-up ends at step 2, and the decay begins at step 8."""
    return with_optimizer(small_config, schedule="constant")


@pytest.fixture(scope="module")
def decayed(constant: PretrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workdir of the run with a constant rate, at its end."""
    folder = tmp_path_factory.mktemp("constant")
    assert command(constant, folder) == 0
    return folder / "run"


@pytest.mark.slow
def test_the_learning_rate_of_each_step(decayed):
    expected = [0, 0.5, 1, 1, 1, 1, 1, 1, 1, 0.5]
    np.testing.assert_allclose(learning_rates(decayed), np.array(expected) * 1e-2)


@pytest.mark.slow
def test_a_run_extended_before_its_decay_is_the_longer_run(constant, decayed, tmp_path):
    """Until step 8 the schedule does not depend on the number of steps.

    The compiler may round two programs with different constants differently.
    """
    longer = dataclasses.replace(constant, num_steps=20)
    pretrain(longer, tmp_path / "longer")
    shutil.copytree(decayed, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "10")
    assert command(constant, tmp_path, "--num-steps", "20", "--extend") == 0
    ours, theirs = (
        logged_lines(tmp_path / name, "train") for name in ("run", "longer")
    )
    expected = [0, 0.5, *[1] * 15, 0.75, 0.5, 0.25]
    for lines in (ours, theirs):
        rates = [line["learning_rate"] for line in lines]
        np.testing.assert_allclose(rates, np.array(expected) * 1e-2, rtol=1e-6)
    assert [line["loss"] for line in ours] == pytest.approx(
        [line["loss"] for line in theirs], rel=1e-5
    )


@pytest.mark.slow
def test_a_run_extended_after_its_decay_returns_to_the_peak(
    constant, decayed, tmp_path
):
    shutil.copytree(decayed, tmp_path / "run")
    assert command(constant, tmp_path, "--num-steps", "15", "--extend") == 0
    rates = learning_rates(tmp_path / "run")[8:]
    expected = [1, 0.5, 1, 1, 1, 2 / 3, 1 / 3]
    np.testing.assert_allclose(rates, np.array(expected) * 1e-2, rtol=1e-6)


@pytest.mark.slow
def test_a_run_without_decay_is_given_one_by_extend(constant, tmp_path, capsys):
    trunk = dataclasses.replace(with_optimizer(constant, decay_share=0.0), num_steps=8)
    assert command(trunk, tmp_path) == 0
    decay = ("--num-steps", "12", "--optimizer.decay-share", "0.334")
    assert command(trunk, tmp_path, *decay) == 2
    assert "optimizer.decay_share was 0.0 and is 0.334" in capsys.readouterr().err
    assert command(trunk, tmp_path, *decay, "--extend") == 0
    expected = [0, 0.5, *[1] * 7, 0.75, 0.5, 0.25]
    rates = learning_rates(tmp_path / "run")
    np.testing.assert_allclose(rates, np.array(expected) * 1e-2, rtol=1e-6)
    history = json.loads((tmp_path / "run" / "config.json").read_text())["history"]
    fields = [change["field"] for change in history[-1]["changed"]]
    assert fields == ["num_steps", "optimizer.decay_share"]


@pytest.mark.slow
def test_a_dry_run_describes_the_schedules(constant, tmp_path, capsys):
    masking = {"rate": 0.4, "max_predictions": 13, "final_rate": 0.1}
    config = with_masking(constant, **masking)
    assert command(config, tmp_path, "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    rate = "learning rate: 0.01 after 2 steps, constant up to 8, 0 after 10"
    assert rate in lines
    assert "masking rate: 0.4 at the first step, 0.1 at the last" in lines
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def falling(small_config: PretrainConfig) -> PretrainConfig:
    """Of a full row of 32 tokens 13 are predicted at the first step, 3 at the last."""
    return with_masking(
        small_config, rate=0.4, max_predictions=13, final_rate=0.1, unit="span"
    )


def assert_equal_trees(one: Any, other: Any) -> None:
    for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True):
        np.testing.assert_array_equal(a, b)


def fixed(config: PretrainConfig) -> PretrainConfig:
    masking = dataclasses.replace(config.masking, final_rate=None)
    return dataclasses.replace(config, masking=masking)


def test_the_predicted_tokens_of_each_step(falling, dataset):
    """At the first step, in the middle and at the last; the keys are the same."""
    config = resolve(falling, dataset)
    task = PretrainingTask(config, dataset)
    corrupt = jax.jit(task.corrupt_at_step)
    batch, key = task.batch(0), jax.random.key(0)
    lengths = batch["end"].max(axis=1)
    rates = {0: 0.4, 3: 0.3, 9: 0.1}
    for step, rate in rates.items():
        weights = corrupt(batch, key, np.int32(step)).masked.weights
        due = [max(1, round(rate * int(length))) for length in lengths]
        assert np.asarray(weights).sum(axis=1).tolist() == due
    # In a phase that begins at step 4, that step has the first rate.
    data = dataclasses.replace(config.data, first_step=4)
    phase = PretrainingTask(dataclasses.replace(config, data=data), dataset)
    masked = jax.jit(phase.corrupt_at_step)(batch, key, np.int32(4))
    assert_equal_trees(masked, corrupt(batch, key, np.int32(0)))


def test_a_constant_rate_masks_as_without_a_step(falling, dataset):
    task = PretrainingTask(resolve(fixed(falling), dataset), dataset)
    batch, key = task.batch(0), jax.random.key(0)
    masked = jax.jit(task.corrupt)(batch, key)
    for step in (0, 9):
        at_step = jax.jit(task.corrupt_at_step)(batch, key, np.int32(step))
        assert_equal_trees(at_step, masked)


def evaluation_counts(config: PretrainConfig, dataset: Dataset) -> list[int]:
    task = PretrainingTask(resolve(config, dataset), dataset)
    batches = list(task.evaluation_batches())
    mask = jax.jit(task.mask_for_evaluation)
    return [int(mask(batch).masked.weights.sum()) for batch in batches]


@pytest.mark.slow
def test_a_run_with_a_falling_rate_resumes_with_the_same_masks(
    falling, dataset, tmp_path
):
    """And it trains on them: at the first step as with a constant rate, then not."""
    assert command(falling, tmp_path) == 0
    run, again = tmp_path / "run", tmp_path / "again"
    shutil.copytree(run, again)
    shutil.rmtree(again / "checkpoints" / "10")
    pretrain(falling, again)
    assert_same_run(again, run)
    pretrain(fixed(falling), tmp_path / "fixed")
    losses, others = (
        [line["mlm_loss"] for line in logged_lines(workdir, "train")]
        for workdir in (run, tmp_path / "fixed")
    )
    assert losses[0] == pytest.approx(others[0], rel=1e-6)
    # The second step has the same parameters: the first has a learning rate of 0.
    assert losses[1] != pytest.approx(others[1], rel=1e-4)
    # Validation rows have the first rate, so that their losses can be compared.
    counts = evaluation_counts(falling, dataset)
    assert counts == evaluation_counts(fixed(falling), dataset)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 2, 1), (1, 4, 1)])
def test_a_falling_rate_on_several_devices(shape, falling, tmp_path):
    """Each device computes the counts of the step by itself."""
    model = dataclasses.replace(
        falling.model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    one = dataclasses.replace(falling, model=model)
    many = dataclasses.replace(one, mesh=MeshConfig(*shape), microbatches=2)
    losses = []
    for name, config in (("one", one), ("many", many)):
        pretrain(config, tmp_path / name)
        lines = logged_lines(tmp_path / name, "train")
        losses.append([line["loss"] for line in lines])
    # A run computes in float32, whose sums differ by 1e-7 or so of a loss.
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
