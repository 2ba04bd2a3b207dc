"""Losses as sums with counts.

Sums and counts of devices, microbatches and ragged last batches add up exactly, which
means do not. The caller divides the totals at the end.
"""

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

Sum = tuple[Float[Array, ""], Float[Array, ""]]
"""A total and its count."""


def weighted_sum(
    values: Float[Array, "*shape"], weights: Float[Array, "*shape"]
) -> Sum:
    """Return Σ weight · value and Σ weight."""
    return jnp.sum(values * weights), jnp.sum(weights)


def cross_entropy(
    scores: Float[Array, "*shape C"],
    labels: Int[Array, "*shape"],
    weights: Float[Array, "*shape"],
) -> Sum:
    """Return the total cross-entropy in nats of the labels under softmax(scores).

    A label that is no class, such as -100, makes it NaN, even where its weight is 0:
    what does not count needs weight 0, and any class as its label.
    """
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels)
    return weighted_sum(losses, weights)


def accuracy(
    scores: Float[Array, "*shape C"],
    labels: Int[Array, "*shape"],
    weights: Float[Array, "*shape"],
) -> Sum:
    """Return the number of labels with the highest score, and the number of labels."""
    hits = jnp.argmax(scores, axis=-1) == labels
    return weighted_sum(hits.astype(jnp.float32), weights)


def accuracy_with_ties(
    scores: Float[Array, "*shape C"],
    labels: Int[Array, "*shape"],
    weights: Float[Array, "*shape"],
) -> Sum:
    """As `accuracy`, but a label that shares the highest score counts, too.

    For a vocabulary, where float32 scores hardly ever tie. The highest score is part of
    the cross-entropy; its index would be another pass over all scores on a TPU.
    """
    own = jnp.take_along_axis(scores, labels[..., None], axis=-1)[..., 0]
    return weighted_sum((own >= scores.max(-1)).astype(jnp.float32), weights)
