"""The compiled training and evaluation steps of any task."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

from bert_jax.config import RunConfig
from bert_jax.distributed.mesh import (
    BATCH_AXES,
    BATCH_SPEC,
    batch_sharding,
    batch_shards,
    shard_map_over_batch,
)
from bert_jax.tasks.task import Sums, Task
from bert_jax.training.gradients import gather, make_gradient, spread_out, written_out
from bert_jax.training.optimizer import (
    learning_rate,
    make_optimizer,
    updates_made,
    without_gradient,
)
from bert_jax.training.state import TrainState, split_step_key

Scalars = dict[str, Float[Array, ""]]


def means(sums: Sums, objective: tuple[str, ...]) -> Scalars:
    """Each total by its count, and `loss`: the sum of the means of the objective.

    A count of zero has a mean of zero, so that a batch without any labelled pair is
    trained on its masked tokens alone.
    """
    scalars = {
        name: total / jnp.maximum(count, 1.0) for name, (total, count) in sums.items()
    }
    loss = jnp.stack([scalars[name] for name in objective]).sum()
    return {"loss": loss, **scalars}


def apply_gradients(
    state: TrainState, grads: Any, optimizer: optax.GradientTransformationExtraArgs
) -> tuple[TrainState, Scalars]:
    """The next state: updated, or, if the gradient is not finite, only counted on."""
    grad_norm = optax.tree.norm(grads)
    finite = jnp.isfinite(grad_norm)
    updates, (adam, *rest) = optimizer.update(
        grads, state.opt_state, state.params, grad_norm=grad_norm
    )
    params = optax.apply_updates(state.params, updates)

    def if_finite(new: Array, old: Array) -> Array:
        return jnp.where(finite, new, old)

    next_state = dataclasses.replace(
        state,
        step=state.step + 1,
        params=jax.tree.map(if_finite, params, state.params),
        # Adam has chosen for itself.
        opt_state=(adam, *jax.tree.map(if_finite, rest, list(state.opt_state[1:]))),
        skipped_in_a_row=jnp.where(finite, 0, state.skipped_in_a_row + 1),
    )
    skipped = next_state.skipped_in_a_row.astype(jnp.float32)
    return next_state, {"grad_norm": grad_norm, "skipped_in_a_row": skipped}


def make_train_step(
    task: Task, config: RunConfig, mesh: Mesh, state_shardings: TrainState
) -> Callable[[TrainState, dict[str, jax.Array]], tuple[TrainState, Scalars]]:
    """State, global batch → next state, scalars of this step. The state is donated.

    The gradient is that of the means over the global batch, summed over the devices
    before it is clipped.
    """
    optimizer = make_optimizer(config.optimizer, config.schedule_steps)
    if config.optimizer.frozen_layers:
        whole_loss = task.loss
        task = dataclasses.replace(
            task,
            loss=lambda params, rows, key: whole_loss(
                without_gradient(params, config.optimizer), rows, key
            ),
        )
    schedule = learning_rate(config.optimizer, config.schedule_steps)
    partitions = jax.tree.map(lambda sharding: sharding.spec, state_shardings.params)
    gradient = make_gradient(task, mesh, partitions, config.microbatches)

    def train_step(
        state: TrainState, batch: dict[str, jax.Array]
    ) -> tuple[TrainState, Scalars]:
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
        draw_key, dropout_key = split_step_key(key)
        grads, sums = gradient(state.params, batch, draw_key, dropout_key)
        rate = schedule(updates_made(state.opt_state))
        next_state, more = apply_gradients(state, grads, optimizer)
        scalars = means(sums, task.objective)
        return next_state, scalars | more | {"learning_rate": rate}

    everywhere = NamedSharding(mesh, P())
    return jax.jit(
        train_step,
        in_shardings=(state_shardings, batch_sharding(mesh)),
        out_shardings=(state_shardings, everywhere),
        donate_argnums=0,
    )


def make_eval_step(
    task: Task, mesh: Mesh, state_shardings: TrainState
) -> Callable[[Any, dict[str, jax.Array]], tuple[Sums, dict[str, jax.Array]]]:
    """Parameters, global batch → sums and counts over all devices, and of each row
    what the task's score needs, on every host. Devices evaluate the rows that they
    hold, as in training."""
    partitions = jax.tree.map(lambda sharding: sharding.spec, state_shardings.params)
    partitions = spread_out(partitions, mesh)

    def local(
        params: Any, batch: dict[str, jax.Array]
    ) -> tuple[Sums, dict[str, jax.Array]]:
        sums, outputs = task.evaluate(gather(params, partitions), batch)
        return jax.lax.psum(sums, BATCH_AXES), outputs

    by_parameter = jax.tree.map(written_out, partitions)
    spread = shard_map_over_batch(
        local, mesh, (by_parameter, BATCH_SPEC), (P(), BATCH_SPEC)
    )
    return jax.jit(
        spread if batch_shards(mesh) > 1 else task.evaluate,
        in_shardings=(state_shardings.params, batch_sharding(mesh)),
        out_shardings=NamedSharding(mesh, P()),
    )
