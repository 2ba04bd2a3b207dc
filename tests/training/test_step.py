"""The compiled step: what goes in, what comes out, and what it refuses to learn."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import BertConfig, OptimizerConfig, PretrainConfig
from bert_jax.data.records import Dataset
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import path_name, to_global_arrays, tree_shardings
from bert_jax.runs.pretraining import resolve
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.tasks.task import Task
from bert_jax.training.faults import DivergedRun, check_finite
from bert_jax.training.optimizer import Optimizer, decayed, learning_rate
from bert_jax.training.step import (
    check_host_shard,
    check_objective,
    initial_state,
    make_train_step,
    means,
)


@pytest.fixture(scope="module")
def config(small_config: PretrainConfig, dataset: Dataset) -> PretrainConfig:
    """Without dropout and at a constant learning rate."""
    model = BertConfig.miniature(
        1,
        16,
        vocab_size=small_config.model.vocab_size,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return resolve(dataclasses.replace(small_config, model=model), dataset)


@pytest.fixture(scope="module")
def task(config: PretrainConfig, dataset: Dataset) -> Task:
    return PretrainingTask(config, dataset)


class Training:
    """A compiled step and the state it starts from."""

    def __init__(self, task: Task, config: PretrainConfig) -> None:
        self.mesh = make_mesh(config.mesh, config.batch_size)
        optimizer = Optimizer.of(config)
        state = initial_state(task.init_params, optimizer, config.seed)
        self.shardings = tree_shardings(self.mesh, state)
        self.state = jax.device_put(state, self.shardings)
        self.step = make_train_step(
            task, optimizer, config.microbatches, self.mesh, self.shardings
        )

    def run(self, batch: dict[str, np.ndarray]) -> dict[str, float]:
        self.state, scalars, _ = self.step(
            self.state, to_global_arrays(batch, self.mesh)
        )
        return {name: float(value) for name, value in scalars.items()}


def test_batches_hold_no_masks(task, dataset):
    for step in range(5):
        assert not (task.batch(step)["tokens"] == dataset.tokenizer.mask_id).any()


def test_one_row_is_masked_otherwise_at_every_step(task, config):
    """Nothing learns at a rate of almost 0, so only masks can move the loss."""
    still = OptimizerConfig(peak_learning_rate=1e-30, weight_decay=0.0, warmup_steps=0)
    training = Training(task, dataclasses.replace(config, optimizer=still))
    losses = [training.run(task.batch(0))["mlm_loss"] for _ in range(4)]
    assert len(set(losses)) == 4
    again = Training(task, dataclasses.replace(config, optimizer=still))
    assert [again.run(task.batch(0))["mlm_loss"] for _ in range(4)] == losses


def test_the_compiled_step_calls_nothing_on_the_host(task, config):
    training = Training(task, config)
    batch = to_global_arrays(task.batch(0), training.mesh)
    lowered = training.step.lower(training.state, batch)
    text = lowered.as_text() + lowered.compile().as_text()
    assert "top_k" in text.lower() or "topk" in text.lower(), "masks are drawn here"
    for word in ("callback", "infeed", "outfeed", "host_compute"):
        assert word not in text.lower()


def test_the_state_is_donated(task, config):
    training = Training(task, config)
    before = training.state
    training.run(task.batch(0))
    kernels = before.params["masked_lm"]["dense"]["kernel"]
    assert kernels.is_deleted()


class BreakableTask(Task):
    """A task with a loss of NaN for batches whose field `broken` says so."""

    def __init__(self, task: Task) -> None:
        self.task = task

    objective = ("mlm_loss", "nsp_loss")

    def init_params(self, key: Any) -> Any:
        return self.task.init_params(key)

    def corrupt(self, batch: dict[str, jax.Array], key: Any) -> Any:
        return self.task.corrupt(batch, key), batch["broken"]

    def count(self, batch: Any) -> Any:
        return self.task.count(batch[0])

    def loss(self, params: Any, batch: Any, key: Any) -> Any:
        corrupted, broken = batch
        sums = self.task.loss(params, corrupted, key)
        total, count = sums["mlm_loss"]
        factor = jnp.where(broken[0] > 0, jnp.nan, 1.0)
        return sums | {"mlm_loss": (factor * total, count)}

    row_numbers = batch = evaluate = evaluation_batches = num_tokens = flops = None


def test_evaluation_and_counts_name_the_whole_objective(task):
    class UncountedTask(PretrainingTask):
        def count(self, batch: Any) -> Any:
            return {"mlm_loss": super().count(batch)["mlm_loss"]}

    params = jax.eval_shape(task.init_params, jax.random.key(0))
    check_objective(task, params, task.batch(0))
    uncounted = UncountedTask(task.config, task.dataset)
    with pytest.raises(
        ValueError, match="UncountedTask.count returns mlm_loss and not nsp_loss, which"
    ):
        check_objective(uncounted, params, task.batch(0))


def test_a_host_that_has_the_rows_of_all_is_refused(task, config):
    batch, size = task.batch(0), config.batch_size
    check_host_shard(task, batch, size, 1)
    check_host_shard(task, batch, 2 * size, 2)
    with pytest.raises(ValueError, match=f"{size} rows on one of 2 hosts, which share"):
        check_host_shard(task, batch, size, 2)


def test_a_gradient_that_is_not_finite_is_left_out(task, config):
    training = Training(BreakableTask(task), config)

    def batch(broken: int) -> dict[str, np.ndarray]:
        marks = np.full(config.batch_size, broken, np.int32)
        return task.batch(0) | {"broken": marks}

    training.run(batch(0))
    before = jax.device_get(training.state)
    scalars = training.run(batch(1))
    after = jax.device_get(training.state)
    assert np.isnan(scalars["grad_norm"]) and scalars["skipped_in_a_row"] == 1
    assert after.step == before.step + 1
    for old, new in zip(
        jax.tree.leaves((before.params, before.opt_state)),
        jax.tree.leaves((after.params, after.opt_state)),
        strict=True,
    ):
        np.testing.assert_array_equal(old, new)
    # The schedule does not count the skipped update; the next one is made.
    assert training.run(batch(0))["skipped_in_a_row"] == 0
    assert int(training.state.opt_state[-1].count) == 2


def test_too_many_skipped_updates_end_the_run():
    check_finite(49.0, 100, False)
    with pytest.raises(DivergedRun, match="not finite for 50 steps in a row up to"):
        check_finite(50.0, 100, False)
    check_finite(0.0, 100, True)
    with pytest.raises(DivergedRun, match="for 1 steps in a row up to step 100; lo"):
        check_finite(1.0, 100, True)


def test_schedule_by_hand():
    config = OptimizerConfig(peak_learning_rate=1.0, warmup_steps=4)
    schedule = learning_rate(config, num_steps=8)
    rates = [float(schedule(step)) for step in range(9)]
    np.testing.assert_allclose(rates, [0, 0.25, 0.5, 0.75, 1, 0.75, 0.5, 0.25, 0])


def test_decay_spares_biases_and_layer_norm(task):
    params = jax.eval_shape(task.init_params, jax.random.key(0))
    chosen = {
        path_name(path)
        for path, decay in jax.tree_util.tree_leaves_with_path(decayed(params))
        if decay
    }
    assert "encoder/embeddings/token/embedding" in chosen
    assert "encoder/layer_0/attention/query/kernel" in chosen
    assert not any("bias" in name or "layer_norm" in name for name in chosen)


def test_means_of_nothing_are_zero():
    one, zero = jnp.float32(3.0), jnp.float32(0.0)
    found = means({"a": (one, jnp.float32(2.0)), "b": (zero, zero)}, ("a", "b"))
    assert {k: float(v) for k, v in found.items()} == {"a": 1.5, "b": 0.0, "loss": 1.5}


def test_the_loss_weighs_its_terms():
    two = jnp.float32(2.0)
    sums = {"a": (jnp.float32(3.0), two), "b": (two, two)}
    found = means(sums, ("a", "b"), {"a": 0.5})
    assert {k: float(v) for k, v in found.items()} == {"a": 1.5, "b": 1.0, "loss": 1.75}
