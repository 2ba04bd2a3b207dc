"""Which device holds which part of parameters and batches.

Steps are compiled by `jax.jit` with `NamedSharding` (formerly called pjit).
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

KeyPath = tuple[Any, ...]
"""The path of a leaf in a tree, as `jax.tree_util` gives it."""
BATCH_AXES = ("data", "fsdp")
BATCH_SPEC = P(BATCH_AXES)
"""Batch rows are sharded over `data` and `fsdp` and replicated over `tensor`."""

RULES: tuple[tuple[str, P], ...] = (
    # Whole rows: a token's vector is looked up without a collective over `tensor`.
    (r"(token|position|segment)/embedding", P(None, "fsdp")),
    (r"layer_norm/(scale|bias)", P()),
    # Split by columns: a device of `tensor` has whole heads, and their attention.
    (r"attention/(query|key|value)/kernel", P("fsdp", "tensor")),
    (r"attention/(query|key|value)/bias", P("tensor")),
    # Split by rows: the products of all heads are summed, the bias is added once.
    (r"attention/output/kernel", P("tensor", "fsdp")),
    (r"attention/output/bias", P()),
    # The same for the inner width, which the activation does not mix.
    (r"feed_forward/in/kernel", P("fsdp", "tensor")),
    (r"feed_forward/in/bias", P("tensor")),
    (r"feed_forward/out/kernel", P("tensor", "fsdp")),
    (r"feed_forward/out/bias", P()),
    # Heads are small: each device of `tensor` computes all of them.
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


def path_name(path: KeyPath) -> str:
    """The path of a leaf in a tree as `a/b/c`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def partition_of(path: str, rules: Sequence[tuple[str, P]] = RULES) -> P:
    """The PartitionSpec of the parameter at `path`, by the first rule that matches.

    The paths of the optimizer's moments end in their parameter's path, so they are
    sharded like it. Raise ValueError if no rule matches.
    """
    for pattern, partition in rules:
        if re.search(f"(^|/){pattern}$", path):
            return partition
    raise ValueError(
        f"No sharding rule matches the parameter {path}; add one to RULES."
    )


def tree_shardings(mesh: Mesh, tree: PyTree) -> PyTree:
    """A NamedSharding for each leaf, by `RULES`.

    Scalars, keys and the parameters that only a task of one's own has are replicated.
    """
    rules = (*RULES, (".*", P()))

    def sharding(path: KeyPath, leaf: Any) -> NamedSharding:
        replicated = leaf.ndim == 0 or path_name(path) == "key"
        name = path_name(path)
        return NamedSharding(mesh, P() if replicated else partition_of(name, rules))

    return jax.tree_util.tree_map_with_path(sharding, tree)


def batch_shards(mesh: Mesh) -> int:
    """The number of shards of a batch: of devices, or of `tensor` groups of them."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def shard_map_over_batch(
    function: Callable[..., PyTree], mesh: Mesh, in_specs: PyTree, out_specs: PyTree
) -> Callable[..., PyTree]:
    """Map a function over the batch axes by `jax.shard_map`: each shard's own rows.

    The function calls the collectives over `data` and `fsdp` itself; the compiler adds
    those over `tensor`. If that has one device, no axis is left to the compiler, which
    cannot partition custom calls, such as cuDNN's attention.
    """
    axes = mesh.axis_names if mesh.shape["tensor"] == 1 else BATCH_AXES
    mapped: Callable[..., PyTree] = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=in_specs,
        out_specs=out_specs,
        axis_names=set(axes),
        check_vma=False,
    )
    return mapped


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
