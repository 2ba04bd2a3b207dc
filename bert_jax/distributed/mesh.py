"""The device mesh, and the part of each batch that a host reads."""

import collections
import math
import operator
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from bert_jax.config import MeshConfig

AXES = ("data", "fsdp", "tensor")
_TYPES = (AxisType.Auto,) * len(AXES)


def make_mesh(
    config: MeshConfig,
    batch_size: int,
    microbatches: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """A mesh of the devices, or of the first if `config` needs fewer.

    By default these are all that JAX sees, on all hosts. Raise ValueError if `config`
    does not fit their number, would leave out a host, or they do not divide the
    microbatch; or if the compiler of CPU devices would abort.
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
    is_rounded = config.reduce_dtype == "bfloat16" and data * fsdp > 1
    if tensor > 1 and is_rounded and devices[0].platform == "cpu":
        raise ValueError(
            f"mesh.reduce_dtype=bfloat16 cannot be used with mesh.tensor={tensor} on "
            "CPU devices, whose compiler fails; leave out one of them."
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
    """Order devices so that neighbours on the mesh have fast links.

    Slices of a TPU pod, and hosts of GPUs, are joined along `data`, the axis that
    exchanges the least. Within a slice, the axes of the torus are split if the shape
    needs it.
    """
    slices = collections.Counter(getattr(d, "slice_index", 0) for d in devices)
    num_slices, (data, fsdp, tensor) = len(slices), shape
    if num_slices == 1:
        mesh = mesh_utils.create_device_mesh(
            shape, devices, allow_split_physical_axes=True
        )
    elif data % num_slices == 0 and len(set(slices.values())) == 1:
        mesh = mesh_utils.create_hybrid_device_mesh(
            (data // num_slices, fsdp, tensor),
            (num_slices, 1, 1),
            devices,
            allow_split_physical_axes=True,
        )
    else:
        key = operator.attrgetter("slice_index", "id")
        return sorted(devices, key=key)
    return list(mesh.flat)


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
    the same `tensor` groups read the same shard. Raise ValueError if such a group takes
    only some of the devices of a process.
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
