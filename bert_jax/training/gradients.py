"""The gradient of a task's losses over a batch that lies on many devices.

Every device that holds rows of its own draws what is left to chance of them, and
differentiates the sums over them, divided by the counts of the whole batch, microbatch
after microbatch; then the gradients are added up over the devices, once. The axes
`data` and `fsdp` are written out here. What lies over `tensor` is left to the compiler,
which follows the parameters' shardings.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Key

from bert_jax.distributed.mesh import (
    BATCH_AXES,
    BATCH_SPEC,
    batch_shards,
    shard_map_over_batch,
)
from bert_jax.tasks.task import Counts, Sums, Task

Gradient = Callable[[Any, Any, Key[Array, ""], Key[Array, ""]], tuple[Any, Sums]]


def written_out(partition: P) -> P:
    """The part of a parameter's partition that is not left to the compiler."""
    return P(*("fsdp" if axis == "fsdp" else None for axis in partition))


def spread_out(partitions: Any, mesh: Mesh) -> Any:
    """The partitions that `gather` has to do with: of one device on `fsdp`, none."""
    if mesh.shape["fsdp"] > 1:
        return partitions
    return jax.tree.map(lambda _: P(), partitions)


def gather(params: Any, partitions: Any) -> Any:
    """Whole parameters from those spread over `fsdp`; backwards, a reduce-scatter."""

    def whole(leaf: Array, partition: P) -> Array:
        if "fsdp" not in partition:
            return leaf
        axis = tuple(partition).index("fsdp")
        return jax.lax.all_gather(leaf, "fsdp", axis=axis, tiled=True)

    return jax.tree.map(whole, params, partitions)


def all_but_gathered(primitive: Any, *_: Any, **__: Any) -> bool:
    """What to keep for the way back: whole parameters are gathered again instead."""
    return primitive.name != "all_gather"


def add_over_rows(grads: Any, partitions: Any) -> Any:
    """The sum over the devices with other rows; over `fsdp`, unless `gather` has."""
    leaves, structure = jax.tree.flatten(grads)
    spread = ["fsdp" in partition for partition in jax.tree.leaves(partitions)]
    for axes, chosen in ((("data",), True), (BATCH_AXES, False)):
        places = [i for i, is_spread in enumerate(spread) if is_spread == chosen]
        # All in one call, and so in one collective.
        for i, total in zip(
            places, jax.lax.psum([leaves[i] for i in places], axes), strict=True
        ):
            leaves[i] = total
    return jax.tree.unflatten(structure, leaves)


def microbatch(values: Any, number: int) -> Any:
    """Each array's rows [B, …] as [number, B / number, …]."""
    return jax.tree.map(lambda x: x.reshape(number, -1, *x.shape[1:]), values)


def make_gradient(
    task: Task, mesh: Mesh, partitions: Any, microbatches: int
) -> Gradient:
    """Parameters, batch, keys for `task.draw` and of dropout → gradient, sums over all.

    Args:
        partitions: of each parameter, by the table of `distributed/mesh.py`.
        microbatches: parts that each device works its rows through in; dropout is
            drawn for each part and device anew.
    """
    partitions = spread_out(partitions, mesh)

    def objective(
        params: Any, rows: Any, counts: Counts, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Sums]:
        sums = task.loss(gather(params, partitions), rows, key)
        parts = [
            sums[name][0] / jnp.maximum(count, 1) for name, count in counts.items()
        ]
        return jnp.stack(parts).sum(), sums

    if mesh.shape["fsdp"] > 1:
        objective = jax.checkpoint(objective, policy=all_but_gathered)
    differentiate = jax.grad(objective, has_aux=True)
    spread = batch_shards(mesh) > 1

    def local_gradient(
        params: Any, batch: Any, draw_key: Key[Array, ""], key: Key[Array, ""]
    ) -> tuple[Any, Sums]:
        rows, counts = task.draw(batch, draw_key)
        if spread:
            counts = jax.lax.psum(counts, BATCH_AXES)

        def add(total: Any, part: tuple[Any, Array]) -> tuple[Any, Sums]:
            part_rows, part_key = part
            grads, sums = differentiate(params, part_rows, counts, part_key)
            return jax.tree.map(jnp.add, total, grads), sums

        parts = microbatch(rows, microbatches), jax.random.split(key, microbatches)
        nothing = jax.tree.map(jnp.zeros_like, params)
        grads, sums = jax.lax.scan(add, nothing, parts)
        return grads, jax.tree.map(lambda values: values.sum(0), sums)

    return over_rows(local_gradient, mesh, partitions) if spread else local_gradient


def over_rows(local_gradient: Gradient, mesh: Mesh, partitions: Any) -> Gradient:
    """`local_gradient` on every device with rows of its own, and the sum over them."""

    def local(params: Any, batch: Any, keys: Array, device: Array) -> tuple[Any, Sums]:
        draw_key, key = jax.random.wrap_key_data(keys)
        own_key = jax.random.fold_in(key, device[0])
        grads, sums = local_gradient(params, batch, draw_key, own_key)
        return add_over_rows(grads, partitions), jax.lax.psum(sums, BATCH_AXES)

    by_parameter = jax.tree.map(written_out, partitions)
    spread = shard_map_over_batch(
        local, mesh, (by_parameter, BATCH_SPEC, P(), BATCH_SPEC), (by_parameter, P())
    )

    def gradient(
        params: Any, batch: Any, draw_key: Key[Array, ""], key: Key[Array, ""]
    ) -> tuple[Any, Sums]:
        devices = jnp.arange(batch_shards(mesh))
        keys = jax.random.key_data(jnp.stack([draw_key, key]))
        return spread(params, batch, keys, devices)

    return gradient
