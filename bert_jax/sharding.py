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

AXES = ("data", "fsdp", "tensor")
ROW_AXES = ("data", "fsdp")
ROWS = P(ROW_AXES)
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


def make_mesh(config: MeshConfig, batch_size: int, microbatches: int = 1) -> Mesh:
    """The devices of every host, or the first of them if `config` needs fewer.

    Raises:
        ValueError: other devices are asked for than there are, a host would be left
            out, or the devices do not divide the microbatch.
    """
    devices = jax.devices()
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
    parts = data * fsdp * microbatches
    if batch_size % parts:
        across = f"{data * fsdp} devices" + f" x {microbatches} microbatches" * (
            microbatches > 1
        )
        raise ValueError(
            f"batch_size={batch_size} is not a multiple of the {across}; "
            f"{-(-batch_size // parts) * parts} would be."
        )
    types = (AxisType.Auto,) * len(AXES)
    return jax.make_mesh((data, fsdp, tensor), AXES, types, devices=devices[:size])


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
    """Rows spread over the devices, `tensor` groups sharing theirs."""
    return NamedSharding(mesh, ROWS)


def to_global(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """This host's rows, as its part of arrays that all hosts' devices share."""
    sharding = batch_sharding(mesh)
    return {
        name: jax.make_array_from_process_local_data(sharding, values)
        for name, values in batch.items()
    }
