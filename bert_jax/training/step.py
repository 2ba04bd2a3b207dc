"""The training state, and the compiled training and evaluation steps of any task."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int, Key, PyTree, UInt32

from bert_jax.config.model import Params
from bert_jax.data.pipeline import Batch
from bert_jax.distributed.environment import compiler_options
from bert_jax.distributed.sharding import (
    BATCH_AXES,
    BATCH_SPEC,
    batch_sharding,
    batch_shards,
    shard_map_over_batch,
    to_global_arrays,
    tree_shardings,
)
from bert_jax.tasks.task import NO_WEIGHTS, DeviceBatch, Evaluation, Sums, Task
from bert_jax.training.faults import StopRequested
from bert_jax.training.global_batch import StepInputs, sum_of_means
from bert_jax.training.gradients import (
    DEFAULT_COLLECTIVES,
    Collectives,
    gather,
    gather_specs,
    gathered_first,
    make_gradient,
    manual_spec,
)
from bert_jax.training.interval import means_of_totals
from bert_jax.training.optimizer import Optimizer


@struct.dataclass
class TrainState:
    """The arrays of a training run; a checkpoint saves all of them.

    The fields are of type PyTree, because trees of shapes or shardings use them too.
    """

    step: PyTree
    """int32[]: the number of steps done. A skipped update counts here, not in the
    optimizer."""
    params: PyTree
    opt_state: PyTree
    key: PyTree
    """uint32[2]: the base key of the run; each step folds its number in."""
    skipped_in_a_row: PyTree
    """int32[]: the number of updates skipped in a row for a non-finite gradient."""


Scalars = dict[str, Float[Array, ""]]
TrainStep = Callable[..., tuple[TrainState, Scalars, Sums]]
"""State, global batch and, if the task has any, fixed parameters → see
`make_train_step`."""
EvalStep = Callable[[Params, DeviceBatch], tuple[Sums, DeviceBatch]]


def split_seed(seed: int | np.uint32 | Array) -> Key[Array, "2"]:
    """Return the key of the initial parameters, and the base key of all steps."""
    return jax.random.split(jax.random.key(seed))


def step_keys(
    base_key: UInt32[Array, "2"], step: Int[Array, ""] | int
) -> Key[Array, "2"]:
    """Return the keys of a step's masking and of its dropout.

    `base_key` is `TrainState.key`, and `step` the number of steps done before.
    """
    # No key is carried from step to step: any step can be computed alone.
    key = jax.random.fold_in(jax.random.wrap_key_data(base_key), step)
    return jax.random.split(key)


def initial_state(
    init_params: Callable[[Key[Array, ""]], Params],
    optimizer: Optimizer,
    seed: int | np.uint32 | Array,
) -> TrainState:
    """Return the state before the first step: a function of the seed alone."""
    init_key, base_key = split_seed(seed)
    params = init_params(init_key)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=optimizer.init(params),
        key=jax.random.key_data(base_key),
        skipped_in_a_row=jnp.zeros((), jnp.int32),
    )


def with_shardings(tree: PyTree, shardings: PyTree) -> PyTree:
    """Return the shape, dtype and sharding of every array."""

    def shape(leaf: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(shape, tree, shardings)


def num_parameters(params: Params) -> int:
    """Return the number of scalars in a parameter tree, or in its shapes."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def means(
    sums: Sums, objective: tuple[str, ...], weights: Mapping[str, float] = NO_WEIGHTS
) -> Scalars:
    """Return each total divided by its count, and `loss`: the objective's sum of means.

    A count of zero has a mean of zero, so that a batch without any labelled pair is
    trained on its masked tokens alone. The weights are the factors of means in `loss`,
    other than 1.
    """
    scalars = {
        name: total / jnp.where(count > 0, count, 1.0)
        for name, (total, count) in sums.items()
    }
    counts = {name: sums[name][1] for name in objective}
    return {"loss": sum_of_means(sums, counts, weights), **scalars}


def apply_gradients(
    state: TrainState, grads: Params, optimizer: Optimizer
) -> tuple[TrainState, Scalars]:
    """Return the next state; on a non-finite gradient only the step advances."""
    params, opt_state, grad_norm = optimizer.update(
        grads, state.opt_state, state.params
    )
    # Decided on the device: the host learns of it when it next reads the scalars.
    finite = jnp.isfinite(grad_norm)
    next_state = TrainState(
        step=state.step + 1,
        params=params,
        opt_state=opt_state,
        key=state.key,
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
    collectives: Collectives = DEFAULT_COLLECTIVES,
) -> TrainStep:
    """Return the jitted step: state, global batch → next state, scalars, sums.

    If the task has fixed parameters, they are the third argument.

    The scalars of this step are means, the gradient's norm and others. The sums
    are the totals and counts that the means are of. The state is donated. The gradient
    is that of the means over the global batch, summed over the devices before it is
    clipped.
    """
    optimizer = dataclasses.replace(optimizer, mesh=mesh)
    fixed_shardings = tree_shardings(mesh, task.fixed_params)
    shardings, freeze = state_shardings.params, optimizer.freeze
    gradient = make_gradient(task, freeze, mesh, shardings, microbatches, collectives)

    def train_step(
        state: TrainState, batch: DeviceBatch, fixed: Params | None = None
    ) -> tuple[TrainState, Scalars, Sums]:
        # A function of seed and step alone: a resumed run draws the same masks.
        keys = step_keys(state.key, state.step)
        inputs = StepInputs(state.params, batch, state.step, keys, fixed or {})
        grads, sums = gradient(inputs)
        # The rate by the optimizer's own count, which a skipped update does not raise.
        rate = optimizer.learning_rate(state.opt_state)
        next_state, more = apply_gradients(state, grads, optimizer)
        scalars = means(sums, task.objective, task.weights)
        return next_state, scalars | more | {"learning_rate": rate}, sums

    # Fixed parameters are an argument: of a constant, the program keeps a copy.
    replicated = NamedSharding(mesh, P())
    beside_shardings = (fixed_shardings,) if fixed_shardings else ()
    platform = mesh.devices.flat[0].platform
    return jax.jit(
        train_step,
        in_shardings=(state_shardings, batch_sharding(mesh), *beside_shardings),
        out_shardings=(state_shardings, replicated, replicated),
        donate_argnums=0,  # the next state takes the memory of this one
        compiler_options=compiler_options(platform, collectives.overlap),
    )


def with_fixed_params(step: TrainStep, fixed: Params) -> TrainStep:
    """Return a step of state and batch alone, which reads these fixed parameters."""
    return (lambda state, batch: step(state, batch, fixed)) if fixed else step


def make_eval_step(task: Task, mesh: Mesh, state_shardings: TrainState) -> EvalStep:
    """Return the jitted step: parameters, global batch → sums, outputs of each row.

    The parameters include the fixed ones.

    Sums and counts are over all devices, and the outputs are on every host.
    Devices evaluate the rows that they hold, as in training.
    """
    shardings = state_shardings.params | tree_shardings(mesh, task.fixed_params)
    partitions = gather_specs(shardings, mesh)
    first = gathered_first(task, partitions)

    def local(params: Params, batch: DeviceBatch) -> tuple[Sums, DeviceBatch]:
        sums, outputs = task.evaluate(gather(params, first), batch)
        # Sums are added up, and not means, which would count a short batch too much.
        return jax.lax.psum(sums, BATCH_AXES), outputs

    in_specs = (jax.tree.map(manual_spec, partitions), BATCH_SPEC)
    sharded = shard_map_over_batch(
        local, mesh=mesh, in_specs=in_specs, out_specs=(P(), BATCH_SPEC)
    )
    return jax.jit(
        sharded if batch_shards(mesh) > 1 else task.evaluate,
        in_shardings=(shardings, batch_sharding(mesh)),
        out_shardings=NamedSharding(mesh, P()),
    )


def check_objective(task: Task, params: Params, batch: Batch | DeviceBatch) -> None:
    """Raise ValueError unless `evaluate` and `count` name all of `objective`.

    The parameters, with the fixed ones, may be shapes; the batch is a host's.
    """
    sums, _ = jax.eval_shape(task.evaluate, params, batch)
    counts = jax.eval_shape(
        lambda rows, key: task.count(task.corrupt_at_step(rows, key, jnp.int32(0))),
        batch,
        jax.random.key(0),
    )
    for method, names in (("evaluate", sums), ("count", counts)):
        missing = [name for name in task.objective if name not in names]
        if missing:
            raise ValueError(
                f"{type(task).__name__}.{method} returns "
                f"{', '.join(names) or 'nothing'} and not {', '.join(missing)}, "
                "which objective names; return each name of objective."
            )


def check_host_shard(
    task: Task, batch: Batch, batch_size: int, num_shards: int
) -> None:
    """Check that one of several hosts has its shard of the batch, and not all of it.

    Raise ValueError if the shards are more rows, or fewer, than `batch_size`.
    """
    rows = len(next(iter(batch.values())))
    if num_shards > 1 and rows * num_shards != batch_size:
        raise ValueError(
            f"{type(task).__name__}.batch returns {rows} rows on one of {num_shards} "
            f"hosts, which share batch_size={batch_size} rows; return the shard of the "
            "host, as DatasetBatches does with the two numbers of bert_jax.host_shard."
        )


_LATE = slice(-3, -2)
"""The outputs to fetch after a step: those of two batches ago, or none."""


def evaluate(
    task: Task,
    eval_step: EvalStep,
    params: Params,
    mesh: Mesh,
    stop_signal: Callable[[], int] = lambda: 0,
) -> dict[str, float] | None:
    """Return the scores over the validation rows, or None if there are none.

    Each row counts once. The sums stay on the devices until the last batch, so that
    batches need not wait for each other. `stop_signal` is called before each batch; if
    it returns a number other than 0, on all processes, StopRequested is raised.
    """
    sums: list[Sums] = []
    outputs = []
    for batch in task.evaluation_batches():
        if number := stop_signal():
            raise StopRequested(number)
        batch_sums, batch_outputs = eval_step(params, to_global_arrays(batch, mesh))
        sums.append(batch_sums)
        outputs.append(batch_outputs)
        # In the host's memory, not the device's, and without waiting for this batch.
        outputs[_LATE] = jax.device_get(outputs[_LATE])
    if not sums:
        return None
    totals: dict[str, np.ndarray] = {}
    for batch_sums in jax.device_get(sums):
        for name, sum_and_count in batch_sums.items():
            totals[name] = totals.get(name, 0) + np.array(sum_and_count, np.float64)
    pairs = {k: (float(total), float(count)) for k, (total, count) in totals.items()}
    floats = means_of_totals(pairs, task.objective, task.weights)
    return task.score(Evaluation(floats, jax.device_get(outputs)))
