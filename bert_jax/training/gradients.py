"""The gradient of a task's losses over a batch that is sharded over many devices.

Each device (or `tensor` group) corrupts its own rows, then differentiates the sums over
them divided by the counts of the global batch, microbatch after microbatch. Gradients
are summed over the devices once. The mesh axes `data` and `fsdp` are manual here, by
shard_map; `tensor` is left to the compiler, which follows the parameters' shardings.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Key, PyTree

from bert_jax.config import RunConfig
from bert_jax.config.model import Params
from bert_jax.distributed.sharding import (
    BATCH_AXES,
    BATCH_SPEC,
    KeyPath,
    batch_shards,
    shard_map_over_batch,
    tree_shardings,
)
from bert_jax.model.layers import at_least_float32
from bert_jax.tasks.task import ComparedTask, Sums, Task
from bert_jax.training.compared_gradient import compared_gradient
from bert_jax.training.global_batch import (
    StepInputs,
    global_counts,
    split_rows,
    sum_of_means,
)

Gradient = Callable[[StepInputs], tuple[Params, Sums]]
"""The inputs of a step → gradient and sums over all."""
_KERNEL = jax.tree_util.DictKey("kernel")


@dataclasses.dataclass(frozen=True)
class Collectives:
    """How a step exchanges parameters and gradients; see `MeshConfig`."""

    gather_dtype: str | None = None
    """Gather all kernels once a step, in this type; None: each where it is used, in
    every microbatch."""
    overlap: bool = False
    reduce_dtype: str = "float32"

    @classmethod
    def of(cls, config: RunConfig) -> "Collectives":
        """Return the collectives that a run is configured to use."""
        mesh = config.mesh
        gather_dtype = config.model.dtype if mesh.gather == "step" else None
        # The gradients of several microbatches are complete together, after the last.
        overlap = mesh.overlap and config.microbatches == 1
        return cls(gather_dtype, overlap, mesh.reduce_dtype)


DEFAULT_COLLECTIVES = Collectives()


def manual_spec(partition: P) -> P:
    """Return a parameter's partition over the manual axes: `fsdp` alone."""
    return P(*("fsdp" if axis == "fsdp" else None for axis in partition))


def gather_specs(shardings: PyTree, mesh: Mesh) -> PyTree:
    """Return the partitions to gather over `fsdp`: none if that axis has one device."""
    is_sharded = mesh.shape["fsdp"] > 1
    return jax.tree.map(lambda leaf: leaf.spec if is_sharded else P(), shardings)


def gather(params: Params, partitions: PyTree) -> Params:
    """All-gather parameters over `fsdp`; the gradient is a reduce-scatter."""

    def all_gather(leaf: Array, partition: P) -> Array:
        if "fsdp" not in partition:
            return leaf
        axis = tuple(partition).index("fsdp")
        return jax.lax.all_gather(leaf, "fsdp", axis=axis, tiled=True)

    return jax.tree.map(all_gather, params, partitions)


def gathered_first(task: Task, partitions: PyTree) -> PyTree:
    """Return the partitions to gather before a task's loss.

    The rest are kernels, which `Dense` gathers where they are used.
    """

    def partition(path: KeyPath, partition: P) -> P:
        in_layer = path[-1] == _KERNEL and task.takes_sharded_kernels
        return P() if in_layer else partition

    return jax.tree_util.tree_map_with_path(partition, partitions)


def gather_once(
    local_gradient: Gradient, task: Task, partitions: PyTree, dtype: str
) -> Gradient:
    """Return a gradient that gathers all parameters, then scatters their gradients.

    Both happen once a step, for all microbatches. Kernels that only `Dense` uses are
    gathered in `dtype`, in which it computes their products.
    """

    def cast(path: KeyPath, leaf: Array) -> Array:
        in_dense = path[-1] == _KERNEL and task.takes_sharded_kernels
        return leaf.astype(dtype) if in_dense else leaf

    def scatter(grad: Array, partition: P) -> Array:
        if "fsdp" not in partition:
            return grad
        axis = tuple(partition).index("fsdp")
        return jax.lax.psum_scatter(grad, "fsdp", scatter_dimension=axis, tiled=True)

    def gradient(inputs: StepInputs) -> tuple[Params, Sums]:
        cast_params = jax.tree_util.tree_map_with_path(cast, inputs.params)
        gathered = gather(cast_params, partitions)
        # Gradients are added up in float32.
        gathered = jax.tree.map(at_least_float32, gathered)
        grads, sums = local_gradient(dataclasses.replace(inputs, params=gathered))
        return jax.tree.map(scatter, grads, partitions), sums

    return gradient


def all_reduce_gradients(
    grads: Params, partitions: PyTree, collectives: Collectives
) -> Params:
    """Sum gradients over `data`, and over `fsdp` those that no gather has reduced."""
    leaves, structure = jax.tree.flatten(grads)
    is_gathered = ["fsdp" in partition for partition in jax.tree.leaves(partitions)]
    # The gradient of a gather is scattered over `fsdp`, and so summed there already.
    for axes, gathered in ((("data",), True), (BATCH_AXES, False)):
        chosen = [i for i, value in enumerate(is_gathered) if value == gathered]
        if math.prod(map(jax.lax.axis_size, axes)) == 1:
            continue
        own = [leaves[i].astype(collectives.reduce_dtype) for i in chosen]
        if collectives.overlap:
            totals = [jax.lax.psum(leaf, axes) for leaf in own]
        else:
            # One call for all leaves, so that they share one collective.
            totals = jax.lax.psum(own, axes)
        for i, total in zip(chosen, totals, strict=True):
            leaves[i] = total.astype(leaves[i].dtype)
    return jax.tree.unflatten(structure, leaves)


def make_gradient(
    task: Task,
    freeze: Callable[[Params], Params],
    mesh: Mesh,
    shardings: PyTree,
    microbatches: int = 1,
    collectives: Collectives = DEFAULT_COLLECTIVES,
) -> Gradient:
    """Return the function that computes the gradient over the global batch.

    `freeze` stops the gradient of frozen parameters. Each device processes its rows in
    `microbatches` parts, each of which has dropout of its own.
    """
    partitions = gather_specs(shardings, mesh)
    fixed_partitions = gather_specs(tree_shardings(mesh, task.fixed_params), mesh)
    first = gathered_first(task, partitions)
    fixed_first = gathered_first(task, fixed_partitions)
    gather_dtype = collectives.gather_dtype if mesh.shape["fsdp"] > 1 else None
    if gather_dtype:
        # `gather_once` has gathered all of them before.
        first = jax.tree.map(lambda _: P(), partitions)

    def prepare(params: Params) -> Params:
        return freeze(gather(params, first))

    is_sharded = batch_shards(mesh) > 1
    axes = BATCH_AXES if is_sharded else ()
    local: Gradient
    if isinstance(task, ComparedTask):
        local = functools.partial(compared_gradient, task, prepare, microbatches, axes)
    else:
        local = functools.partial(
            local_gradient, task, prepare, fixed_first, microbatches, axes
        )
    if gather_dtype:
        local = gather_once(local, task, partitions, gather_dtype)
    if not is_sharded:
        # One device, or one `tensor` group: there is nothing to sum.
        return local
    return shard_gradient(local, mesh, partitions, fixed_partitions, collectives)


def local_gradient(
    task: Task,
    prepare: Callable[[Params], Params],
    fixed_first: PyTree,
    microbatches: int,
    axes: tuple[str, ...],
    inputs: StepInputs,
) -> tuple[Params, Sums]:
    """Return the gradient and the sums over the rows of one batch shard.

    Counts are added over `axes`. The partitions `fixed_first` are of fixed parameters
    that are gathered before the loss.
    """
    params, (mask_key, dropout_key) = inputs.params, inputs.keys

    # 1. Mask the rows, and count over the global batch. The counts are known before any
    # gradient: each part's sums are divided by them, so that the gradients of all parts
    # add up to that of the mean, however unevenly masks fall on devices and parts.
    corrupted = task.corrupt_at_step(inputs.batch, mask_key, inputs.step)
    counts = global_counts(task, corrupted, axes)

    def objective(
        params: Params, batch: PyTree, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Sums]:
        everything = prepare(params) | gather(inputs.fixed, fixed_first)
        sums = task.loss(everything, batch, key)
        return sum_of_means(sums, counts, task.weights), sums

    # 2. Accumulate the gradient over the microbatches; the activations of one part at a
    # time are in memory.
    def add(total: Params, part: tuple[PyTree, Array]) -> tuple[Params, Sums]:
        batch, key = part
        grads, sums = jax.grad(objective, has_aux=True)(params, batch, key)
        return jax.tree.map(jnp.add, total, grads), sums

    keys = jax.random.split(dropout_key, microbatches)
    parts = split_rows(corrupted, microbatches)
    zeros = jax.tree.map(jnp.zeros_like, params)
    grads, sums = jax.lax.scan(add, zeros, (parts, keys))
    return grads, jax.tree.map(lambda values: values.sum(0), sums)


def shard_gradient(
    local_gradient: Gradient,
    mesh: Mesh,
    partitions: PyTree,
    fixed_partitions: PyTree,
    collectives: Collectives,
) -> Gradient:
    """Return `local_gradient` on every batch shard, summed over all of them."""

    def local(inputs: StepInputs, shard: Array) -> tuple[Params, Sums]:
        mask_key, dropout_key = jax.random.wrap_key_data(inputs.keys)
        # Masks depend on a row's number, so that all shards may have their key; dropout
        # has a key for each, or equal places of two shards would drop together.
        own_key = jax.random.fold_in(dropout_key, shard[0])
        own = dataclasses.replace(inputs, keys=jnp.stack([mask_key, own_key]))
        grads, sums = local_gradient(own)
        # Once a step, after the last microbatch.
        totals = all_reduce_gradients(grads, partitions, collectives)
        return totals, jax.lax.psum(sums, BATCH_AXES)

    specs, fixed_specs = jax.tree.map(manual_spec, (partitions, fixed_partitions))
    in_specs = StepInputs(specs, BATCH_SPEC, P(), P(), fixed_specs), BATCH_SPEC
    sharded = shard_map_over_batch(local, mesh, in_specs, (specs, P()))

    def gradient(inputs: StepInputs) -> tuple[Params, Sums]:
        shards = jnp.arange(batch_shards(mesh))
        raw = dataclasses.replace(inputs, keys=jax.random.key_data(inputs.keys))
        return sharded(raw, shards)

    return gradient
