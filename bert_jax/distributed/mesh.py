"""The mesh, and the one table that says how each parameter lies on it.

The steps are `jax.jit` with `NamedSharding`: what used to be called pjit.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.config import MeshConfig

AXES = ("data", "fsdp", "tensor")
BATCH_AXES = ("data", "fsdp")
_TYPES = (AxisType.Auto,) * len(AXES)
BATCH_SPEC = P(BATCH_AXES)
"""How the rows of a batch lie: devices of one `tensor` group see the same ones."""

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
"""Pattern of the end of a parameter's path → its partition; the first match holds.

Heads and feed-forward width lie over `tensor` (Shoeybi et al. 2019, §3): the product
that leaves each sublayer is the one that is summed over it. The other axis of every
large array lies over `fsdp`, and is gathered where it is used. The vocabulary is never
divided: 30522 is a multiple of neither 4 nor 8.
"""


def make_mesh(
    config: MeshConfig,
    batch_size: int,
    microbatches: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """The devices of every host, or the first of them if `config` needs fewer.

    Args:
        devices: to take instead of all that there are.

    Raises:
        ValueError: other devices are asked for than there are, a host would be left
            out, or the devices do not divide the microbatch.
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
            f"not make {len(devices)} devices, which are there; their product must."
        )
    counts = {"devices": data * fsdp, "microbatches": microbatches}
    if batch_size % (parts := math.prod(counts.values())):
        across = [f"{number} {name}" for name, number in counts.items() if number > 1]
        raise ValueError(
            f"batch_size={batch_size} is not a multiple of the {' x '.join(across)}; "
            f"{-(-batch_size // parts) * parts} would be."
        )
    shape = (data, fsdp, tensor)
    arranged = np.array(group_by_process(order_by_topology(devices[:size], shape)))
    return Mesh(arranged.reshape(shape), AXES, axis_types=_TYPES)


def order_by_topology(
    devices: Sequence[jax.Device], shape: tuple[int, int, int]
) -> list[jax.Device]:
    """The devices in an order in which neighbours on the mesh have short links."""
    slices = [getattr(device, "slice_index", 0) for device in devices]
    if len(set(slices)) > 1:
        # GPUs of several hosts are, and jax.make_mesh refuses them.
        ordered = sorted(zip(slices, devices, strict=True), key=_slice_and_id)
        return [device for _, device in ordered]
    mesh = jax.make_mesh(shape, AXES, _TYPES, devices=devices)
    return list(mesh.devices.flat)


def _slice_and_id(item: tuple[int, jax.Device]) -> tuple[int, int]:
    return item[0], item[1].id


def group_by_process(devices: Sequence[jax.Device]) -> list[jax.Device]:
    """The devices of each process together, the processes as they first come.

    Along the rows of a TPU's torus they may alternate. Rows of one host must follow
    each other, and a sum over all devices takes no other way for it.
    """
    processes = list(dict.fromkeys(device.process_index for device in devices))
    return sorted(devices, key=lambda device: processes.index(device.process_index))


def host_shard(mesh: Mesh, process: int) -> tuple[int, int]:
    """Which share of each batch a process reads, and how many shares there are.

    Shares are in the order of the mesh's processes. Processes whose devices belong to
    the same `tensor` groups read the same share.

    Raises:
        ValueError: a group has a part of the devices of a process.
    """
    rows: dict[int, list[int]] = {}
    for number, group in enumerate(mesh.devices.reshape(-1, mesh.shape["tensor"])):
        for device in group:
            rows.setdefault(device.process_index, []).append(number)
    held = {process: tuple(dict.fromkeys(numbers)) for process, numbers in rows.items()}
    shares = list(dict.fromkeys(held.values()))
    if sum(map(len, shares)) != mesh.size // mesh.shape["tensor"]:
        raise ValueError(
            f"mesh.tensor={mesh.shape['tensor']} parts the {mesh.size // len(rows)} "
            "devices of a host; it must divide their number, or be a multiple of it."
        )
    return shares.index(held[process]), len(shares)


def path_name(path: tuple[Any, ...]) -> str:
    """A leaf's place in a tree as `a/b/c`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def partition_of(path: str) -> P:
    """The partition of the parameter at `path`, by the first rule that matches its end.

    The optimizer's moments end in their parameter's path, so that they follow it.

    Raises:
        ValueError: no rule matches.
    """
    for pattern, partition in RULES:
        if re.search(f"(^|/){pattern}$", path):
            return partition
    raise ValueError(
        f"No sharding rule matches the parameter {path}; add one to RULES."
    )


def tree_shardings(mesh: Mesh, tree: Any) -> Any:
    """A NamedSharding for each array: by the table, and scalars and keys everywhere."""

    def sharding(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        everywhere = leaf.ndim == 0 or path_name(path) == "key"
        return NamedSharding(mesh, P() if everywhere else partition_of(path_name(path)))

    return jax.tree_util.tree_map_with_path(sharding, tree)


def batch_shards(mesh: Mesh) -> int:
    """How many devices, or `tensor` groups of them, hold rows of their own."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def shard_map_over_batch(
    function: Callable[..., Any], mesh: Mesh, in_specs: Any, out_specs: Any
) -> Callable[..., Any]:
    """`function` as each of those that hold rows computes it, on its own rows.

    The collectives over `data` and `fsdp` are the function's own; what lies over
    `tensor` is left to the compiler.
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
    """Rows spread over the devices, `tensor` groups sharing theirs."""
    return NamedSharding(mesh, BATCH_SPEC)


def to_global_arrays(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """This host's rows, as its part of arrays that all hosts' devices share."""
    sharding = batch_sharding(mesh)
    return {
        name: jax.make_array_from_process_local_data(sharding, values)
        for name, values in batch.items()
    }
