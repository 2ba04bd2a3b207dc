"""Losses as sums with counts.

A sum and not a mean, so that devices, microbatches and ragged last batches add up
exactly; whoever has them all divides.
"""

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

Sum = tuple[Float[Array, ""], Float[Array, ""]]
"""A total, and of how many."""


def weighted_sum(
    values: Float[Array, "*shape"], weights: Float[Array, "*shape"]
) -> Sum:
    """Σ weight · value, and Σ weight."""
    return jnp.sum(values * weights), jnp.sum(weights)


def cross_entropy(
    scores: Float[Array, "*shape C"],
    labels: Int[Array, "*shape"],
    weights: Float[Array, "*shape"],
) -> Sum:
    """Total cross-entropy in nats of the labels under softmax(scores)."""
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels)
    return weighted_sum(losses, weights)


def accuracy(
    scores: Float[Array, "*shape C"],
    labels: Int[Array, "*shape"],
    weights: Float[Array, "*shape"],
) -> Sum:
    """How many labels have the highest score, and of how many."""
    hits = jnp.argmax(scores, axis=-1) == labels
    return weighted_sum(hits.astype(jnp.float32), weights)
