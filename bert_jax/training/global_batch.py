"""What the parts of a global batch have in common: counts, and the sum of means."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from bert_jax.tasks.task import Counts, Sums, Task


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
    """Return the weighted sum of the means that are minimised.

    Args:
        counts: those of the global batch.
        weights: as for `add_terms`.
    """
    terms = {
        name: sums[name][0] / jnp.where(count > 0, count, 1)
        for name, count in counts.items()
    }
    return add_terms(terms, weights)


def add_terms(
    terms: Mapping[str, Float[Array, ""]], weights: Mapping[str, float]
) -> Float[Array, ""]:
    """Return the sum of the terms of a loss, each times its weight if it has one."""
    weighted = [
        term * weights[name] if name in weights else term
        for name, term in terms.items()
    ]
    return jnp.stack(weighted).sum()
