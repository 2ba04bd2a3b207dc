"""The device mesh, and the table of sharding rules for parameters.

Steps are compiled by `jax.jit` with `NamedSharding` (formerly called pjit).
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from bert_jax.config import MeshConfig

KeyPath = tuple[Any, ...]
"""The path of a leaf in a tree, as `jax.tree_util` gives it."""
AXES = ("data", "fsdp", "tensor")
BATCH_AXES = ("data", "fsdp")
_TYPES = (AxisType.Auto,) * len(AXES)
BATCH_SPEC = P(BATCH_AXES)
"""Batch rows are sharded over `data` and `fsdp` and replicated over `tensor`."""

RULES: tuple[tuple[str, P], ...] = (
    (r"(token|position|segment)/embedding", P(None, "fsdp")),
    (r"layer_norm/(scale|bias)", P()),
    (r"attention/(query|key|value)/kernel", P("fsdp", "tensor")),
    (r"attention/(query|key|value)/bias", P("tensor")),
    (r"attention/output/kernel", P("tensor", "fsdp")),
    (r"attention/output/bias", P()),
    (r"feed_forward/in/kernel", P("fsdp", "tensor")),
    (r"feed_forward/in/bias", P("tensor")),
    (r"feed_forward/out/kernel", P("tensor", "fsdp")),
    (r"feed_forward/out/bias", P()),
    (r"(pooler|masked_lm|next_sentence|classifier)/dense/kernel", P("fsdp")),
    (r"(pooler|masked_lm|next_sentence|classifier)/dense/bias", P()),
    (r"masked_lm/bias", P()),
)
"""Pattern of the end of a parameter's path → its PartitionSpec; the first match counts.

Heads and feed-forward width are sharded over `tensor` (Shoeybi et al. 2019, §3): the
output projection of each sublayer is followed by an all-reduce over it. The other axis
of every large array is sharded over `fsdp`, and gathered where it is used. The
vocabulary axis is never sharded: 30522 is a multiple of neither 4 nor 8.
"""


def make_mesh(
    config: MeshConfig,
    batch_size: int,
    microbatches: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """A mesh of the devices of all hosts, or of the first if `config` needs fewer.

    Args:
        devices: the devices to use; None: all that JAX sees.

    Raises:
        ValueError: `config` does not fit the number of devices, would leave out a
            host, or the devices do not divide the microbatch.
    """
    devices = jax.devices() if devices is None else devices
    fsdp, tensor = config.fsdp, config.tensor
    data = len(devices) // (fsdp * tensor) if config.data == -1 else config.data
    size = data * fsdp * tensor
    if not 0 < size <= len(devices) or (
        size < len(devices) and (config.data == -1 or jax.process_count() > 1)
    ):
        raise ValueError(
            f"mesh.data={config.data}, mesh.fsdp={fsdp} and mesh.tensor={tensor} do "
            f"not make {len(devices)} devices; their product must be that number."
        )
    counts = {"devices": data * fsdp, "microbatches": microbatches}
    if batch_size % (divisor := math.prod(counts.values())):
        factors = [f"{count} {name}" for name, count in counts.items() if count > 1]
        raise ValueError(
            f"batch_size={batch_size} is not a multiple of the {' x '.join(factors)}; "
            f"{-(-batch_size // divisor) * divisor} would be."
        )
    shape = (data, fsdp, tensor)
    ordered = np.array(group_by_process(order_by_topology(devices[:size], shape)))
    return Mesh(ordered.reshape(shape), AXES, axis_types=_TYPES)


def order_by_topology(
    devices: Sequence[jax.Device], shape: tuple[int, int, int]
) -> list[jax.Device]:
    """Order devices so that neighbours on the mesh have fast links."""
    if len({_slice_and_id(device)[0] for device in devices}) > 1:
        # GPUs of several hosts: each host is a slice, which jax.make_mesh refuses.
        return sorted(devices, key=_slice_and_id)
    mesh = jax.make_mesh(shape, AXES, _TYPES, devices=devices)
    return list(mesh.devices.flat)


def _slice_and_id(device: jax.Device) -> tuple[int, int]:
    return getattr(device, "slice_index", 0), device.id


def group_by_process(devices: Sequence[jax.Device]) -> list[jax.Device]:
    """Group devices by process, in the order in which the processes first appear.

    In the order of a TPU's torus, the devices of hosts may alternate, but the batch
    rows of one host must be contiguous. An all-reduce is not slower for it.
    """
    processes = list(dict.fromkeys(device.process_index for device in devices))
    return sorted(devices, key=lambda device: processes.index(device.process_index))


def host_shard(mesh: Mesh, process: int) -> tuple[int, int]:
    """The index of the shard of each batch that a process reads, and their number.

    Shards are in the order of the mesh's processes. Processes whose devices belong to
    the same `tensor` groups read the same shard.

    Raises:
        ValueError: a `tensor` group takes only some of the devices of a process.
    """
    # The `tensor` groups that each process has devices in, without duplicates.
    groups: dict[int, dict[int, None]] = {}
    for index, group in enumerate(mesh.devices.reshape(-1, mesh.shape["tensor"])):
        for device in group:
            groups.setdefault(device.process_index, {})[index] = None
    # Processes with the same groups have the same shard.
    shards = list(dict.fromkeys(map(tuple, groups.values())))
    if sum(map(len, shards)) != mesh.size // mesh.shape["tensor"]:
        raise ValueError(
            f"mesh.tensor={mesh.shape['tensor']} splits the {mesh.size // len(groups)} "
            "devices of a host; it must divide their number, or be a multiple of it."
        )
    return shards.index(tuple(groups[process])), len(shards)


def path_name(path: KeyPath) -> str:
    """The path of a leaf in a tree as `a/b/c`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def partition_of(path: str) -> P:
    """The PartitionSpec of the parameter at `path`, by the first rule that matches.

    The paths of the optimizer's moments end in their parameter's path, so they are
    sharded like it.

    Raises:
        ValueError: no rule matches.
    """
    for pattern, partition in RULES:
        if re.search(f"(^|/){pattern}$", path):
            return partition
    raise ValueError(
        f"No sharding rule matches the parameter {path}; add one to RULES."
    )


def tree_shardings(mesh: Mesh, tree: PyTree) -> PyTree:
    """A NamedSharding for each leaf, by `RULES`; scalars and keys are replicated."""

    def sharding(path: KeyPath, leaf: Any) -> NamedSharding:
        replicated = leaf.ndim == 0 or path_name(path) == "key"
        return NamedSharding(mesh, P() if replicated else partition_of(path_name(path)))

    return jax.tree_util.tree_map_with_path(sharding, tree)


def batch_shards(mesh: Mesh) -> int:
    """The number of shards of a batch: of devices, or of `tensor` groups of them."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def shard_map_over_batch(
    function: Callable[..., PyTree], mesh: Mesh, in_specs: PyTree, out_specs: PyTree
) -> Callable[..., PyTree]:
    """`jax.shard_map` of `function` over the batch axes: each shard on its own rows.

    `function` calls the collectives over `data` and `fsdp` itself; the compiler adds
    those over `tensor`.
    """
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=in_specs,
        out_specs=out_specs,
        axis_names=set(BATCH_AXES),
        check_vma=False,
    )


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """The sharding of batch arrays; see `BATCH_SPEC`."""
    return NamedSharding(mesh, BATCH_SPEC)


def to_global_arrays(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """Make global arrays, sharded over all hosts, from this host's rows of a batch."""
    sharding = batch_sharding(mesh)
    return {
        name: jax.make_array_from_process_local_data(sharding, values)
        for name, values in batch.items()
    }
