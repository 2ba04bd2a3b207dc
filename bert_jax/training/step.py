"""The compiled training and evaluation steps of any task."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

from bert_jax.config.model import Params
from bert_jax.data.pipeline import Batch
from bert_jax.distributed.mesh import (
    BATCH_AXES,
    BATCH_SPEC,
    batch_sharding,
    batch_shards,
    shard_map_over_batch,
)
from bert_jax.tasks.task import DeviceBatch, Sums, Task
from bert_jax.training.gradients import (
    gather,
    gather_specs,
    make_gradient,
    manual_spec,
)
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.state import TrainState, split_step_key

Scalars = dict[str, Float[Array, ""]]
TrainStep = Callable[[TrainState, DeviceBatch], tuple[TrainState, Scalars]]
EvalStep = Callable[[Params, DeviceBatch], tuple[Sums, DeviceBatch]]


def means(sums: Sums, objective: tuple[str, ...]) -> Scalars:
    """Return each total divided by its count, and `loss`: the objective's sum of means.

    A count of zero has a mean of zero, so that a batch without any labelled pair is
    trained on its masked tokens alone.
    """
    scalars = {
        name: total / jnp.maximum(count, 1.0) for name, (total, count) in sums.items()
    }
    loss = jnp.stack([scalars[name] for name in objective]).sum()
    return {"loss": loss, **scalars}


def apply_gradients(
    state: TrainState, grads: Params, optimizer: Optimizer
) -> tuple[TrainState, Scalars]:
    """Return the next state; on a non-finite gradient only the step advances."""
    params, opt_state, grad_norm = optimizer.update(
        grads, state.opt_state, state.params
    )
    finite = jnp.isfinite(grad_norm)
    next_state = dataclasses.replace(
        state,
        step=state.step + 1,
        params=params,
        opt_state=opt_state,
        skipped_in_a_row=jnp.where(finite, 0, state.skipped_in_a_row + 1),
    )
    skipped = next_state.skipped_in_a_row.astype(jnp.float32)
    return next_state, {"grad_norm": grad_norm, "skipped_in_a_row": skipped}


def make_train_step(
    task: Task,
    optimizer: Optimizer,
    microbatches: int,
    mesh: Mesh,
    state_shardings: TrainState,
) -> TrainStep:
    """Return the jitted step: state, global batch → next state, scalars of this step.

    The state is donated. The gradient is that of the means over the global batch,
    summed over the devices before it is clipped.
    """
    partitions = jax.tree.map(lambda sharding: sharding.spec, state_shardings.params)
    gradient = make_gradient(task, optimizer.freeze, mesh, partitions, microbatches)

    def train_step(state: TrainState, batch: DeviceBatch) -> tuple[TrainState, Scalars]:
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
        mask_key, dropout_key = split_step_key(key)
        grads, sums = gradient(state.params, batch, mask_key, dropout_key)
        rate = optimizer.learning_rate(state.opt_state)
        next_state, more = apply_gradients(state, grads, optimizer)
        scalars = means(sums, task.objective)
        return next_state, scalars | more | {"learning_rate": rate}

    replicated = NamedSharding(mesh, P())
    return jax.jit(
        train_step,
        in_shardings=(state_shardings, batch_sharding(mesh)),
        out_shardings=(state_shardings, replicated),
        donate_argnums=0,
    )


def make_eval_step(task: Task, mesh: Mesh, state_shardings: TrainState) -> EvalStep:
    """Return the jitted step: parameters, global batch → sums, outputs of each row.

    The sums and counts are those of all devices, and the outputs are on every host.
    Devices evaluate the rows that they hold, as in training.
    """
    partitions = jax.tree.map(lambda sharding: sharding.spec, state_shardings.params)
    partitions = gather_specs(partitions, mesh)

    def local(params: Params, batch: DeviceBatch) -> tuple[Sums, DeviceBatch]:
        sums, outputs = task.evaluate(gather(params, partitions), batch)
        return jax.lax.psum(sums, BATCH_AXES), outputs

    params_spec = jax.tree.map(manual_spec, partitions)
    sharded = shard_map_over_batch(
        local, mesh, (params_spec, BATCH_SPEC), (P(), BATCH_SPEC)
    )
    return jax.jit(
        sharded if batch_shards(mesh) > 1 else task.evaluate,
        in_shardings=(state_shardings.params, batch_sharding(mesh)),
        out_shardings=NamedSharding(mesh, P()),
    )


def check_objective(task: Task, params: Params, batch: Batch | DeviceBatch) -> None:
    """Check, by shapes alone, that `evaluate` and `count` name all of `objective`.

    Args:
        params: parameters or their shapes.
        batch: a host's batch.

    Raises:
        ValueError: a name is missing.
    """
    sums, _ = jax.eval_shape(task.evaluate, params, batch)
    counts = jax.eval_shape(
        lambda rows, key: task.count(task.corrupt(rows, key)), batch, jax.random.key(0)
    )
    for method, names in (("evaluate", sums), ("count", counts)):
        missing = [name for name in task.objective if name not in names]
        if missing:
            raise ValueError(
                f"{type(task).__name__}.{method} returns "
                f"{', '.join(names) or 'nothing'} and not {', '.join(missing)}, "
                "which objective names; return each name of objective."
            )
