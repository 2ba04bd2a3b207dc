"""The inputs of a step, and what the parts of its global batch have in common."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, PyTree

from bert_jax.tasks.task import Counts, Sums, Task


@struct.dataclass
class StepInputs:
    """What a gradient is computed of; the fields are PyTrees, for partitions too."""

    params: PyTree
    batch: PyTree
    step: PyTree
    """int32[]: the number of steps done before."""
    keys: PyTree
    """Key[2]: the step's keys of masking and of dropout."""
    fixed: PyTree
    """Parameters that are not trained, such as a teacher's; {}: none."""


def global_counts(task: Task, batch: PyTree, axes: tuple[str, ...]) -> Counts:
    """Return a task's counts of a batch, summed over mesh axes."""
    counts = task.count(batch)
    totals: Counts = jax.lax.psum(counts, axes) if axes else counts
    return totals


def split_rows(batch: PyTree, microbatches: int) -> PyTree:
    """Return rows [B, …] as [microbatches, B / microbatches, …]."""
    return jax.tree.map(lambda x: x.reshape(microbatches, -1, *x.shape[1:]), batch)


def sum_of_means(
    sums: Sums, counts: Counts, weights: Mapping[str, float]
) -> Float[Array, ""]:
    """Return the sum of the means that are minimised, times their weights if any.

    The counts are those of the global batch.
    """
    terms = []
    for name, count in counts.items():
        mean = sums[name][0] / jnp.where(count > 0, count, 1)
        terms.append(mean * weights[name] if name in weights else mean)
    return jnp.stack(terms).sum()
