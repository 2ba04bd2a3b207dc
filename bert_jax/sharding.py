"""The mesh, and the one table that says how each parameter lies on it.

The steps are `jax.jit` with `NamedSharding`: what used to be called pjit.
"""

import re
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.config import MeshConfig

RULES: tuple[tuple[str, P], ...] = (
    (r"(token|position|segment)/embedding", P()),
    (r"layer_norm/(scale|bias)", P()),
    (r"attention/(query|key|value|output)/(kernel|bias)", P()),
    (r"feed_forward/(in|out)/(kernel|bias)", P()),
    (r"(pooler|masked_lm|next_sentence)/dense/(kernel|bias)", P()),
    (r"masked_lm/bias", P()),
)
"""Pattern of the end of a parameter's path → its partition; the first match holds."""


def make_mesh(config: MeshConfig, batch_size: int) -> Mesh:
    """The devices of every host, or the first `config.data` of them, as axis `data`.

    Raises:
        ValueError: more devices are asked for than there are, a host would be left
            out, or the devices do not divide the batch.
    """
    devices = jax.devices()
    size = len(devices) if config.data == -1 else config.data
    if size > len(devices) or (size < len(devices) and jax.process_count() > 1):
        raise ValueError(
            f"mesh.data={size} but {len(devices)} devices are there; "
            f"use {len(devices)}, or -1 for all."
        )
    if batch_size % size:
        raise ValueError(
            f"batch_size={batch_size} is not a multiple of the {size} devices; "
            f"{-(-batch_size // size) * size} would be."
        )
    types = (AxisType.Auto,)
    return jax.make_mesh((size,), ("data",), types, devices=devices[:size])


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


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows spread over the axis `data`."""
    return NamedSharding(mesh, P("data"))


def to_global(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """This host's rows, as its part of arrays that all hosts' devices share."""
    sharding = batch_sharding(mesh)
    return {
        name: jax.make_array_from_process_local_data(sharding, values)
        for name, values in batch.items()
    }
