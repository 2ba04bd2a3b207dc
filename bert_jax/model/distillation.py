"""How far a student is from its teacher: in scores, hidden states and relations.

Each distance is a value per position, so that sums of it add up over devices and
microbatches.
"""

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Key, PyTree

from bert_jax.config import BertConfig
from bert_jax.config.model import Params
from bert_jax.model.bert import compute
from bert_jax.model.layers import at_least_float32

Projections = tuple[Float[Array, "B T _"], ...]
"""The queries, keys and values of a layer, with all heads side by side."""


@struct.dataclass
class Internals:
    """What the layers of a model compute on the way to its scores."""

    states: list[Float[Array, "B T D"]]
    """The output of each layer."""
    projections: list[Projections]
    """Query, key and value of each layer."""


def compute_with_internals(
    config: BertConfig,
    params: Params,
    method: str,
    *args: object,
    dropout_key: Key[Array, ""] | None = None,
) -> tuple[PyTree, Internals]:
    """Return the result of `compute` for a method of `Bert`, and the internals."""
    result, stored = compute(
        config, params, method, *args, dropout_key=dropout_key, mutable=["internals"]
    )
    encoder = stored["internals"]["encoder"]
    layers = [encoder[f"layer_{i}"] for i in range(config.num_hidden_layers)]
    projections = [layer["attention"]["projections"][0] for layer in layers]
    return result, Internals(encoder["states"][0][1:], projections)


def score_divergence(
    scores: Float[Array, "*shape C"],
    teacher_scores: Float[Array, "*shape C"],
    temperature: float,
) -> Float[Array, "*shape"]:
    """Return the divergence of the student's probabilities from the teacher's, in nats.

    It is KL(teacher ‖ student) of the softmax of the scores divided by `temperature`,
    times its square: the gradient then keeps its size (Hinton et al. 2015, §2).
    """
    ours = jax.nn.log_softmax(scores / temperature)
    theirs = jax.nn.log_softmax(teacher_scores / temperature)
    return temperature**2 * (jnp.exp(theirs) * (theirs - ours)).sum(-1)


def binary_divergence(
    scores: Float[Array, "*shape"],
    teacher_scores: Float[Array, "*shape"],
    temperature: float,
) -> Float[Array, "*shape"]:
    """As `score_divergence` between a class and its absence, by the sigmoid."""
    zeros = jnp.zeros_like(scores)
    ours, theirs = (jnp.stack([x, zeros], -1) for x in (scores, teacher_scores))
    return score_divergence(ours, theirs, temperature)


def state_distance(
    states: Float[Array, "B T D"], teacher_states: Float[Array, "B T D"]
) -> Float[Array, "B T"]:
    """Return the mean squared difference of each hidden state (Jiao et al. 2020, §3).

    There is no projection: the models have the same width.
    """
    difference = at_least_float32(states) - at_least_float32(teacher_states)
    return (difference**2).mean(-1)


def log_relations(
    vectors: Float[Array, "B T D"], visible: Bool[Array, "B #T T"], num_heads: int
) -> Float[Array, "B N T T"]:
    """Return the log of each token's relation to the others (Wang et al. 2021, §3.1).

    A relation is the softmax of scaled dot products of vectors of one kind, in each of
    `num_heads` parts of the width.
    """
    parts = at_least_float32(vectors.reshape(*vectors.shape[:2], num_heads, -1))
    products = jnp.einsum("BTNH,BSNH->BNTS", parts, parts)
    products = products / jnp.sqrt(parts.shape[-1]).astype(parts.dtype)
    lowest = jnp.finfo(jnp.float32).min
    return jax.nn.log_softmax(jnp.where(visible[:, None], products, lowest))


def relation_divergence(
    projections: Projections,
    teacher_projections: Projections,
    visible: Bool[Array, "B #T T"],
    num_heads: int,
) -> Float[Array, "B T"]:
    """Return KL(teacher ‖ student) of each token's relations (Wang et al. 2021, §3).

    It is the sum over queries, keys and values, and the mean over the relation heads,
    whose number divides the widths of both models.
    """
    total = jnp.zeros(projections[0].shape[:2])
    for own, teachers in zip(projections, teacher_projections, strict=True):
        ours, theirs = (log_relations(x, visible, num_heads) for x in (own, teachers))
        terms = jnp.where(visible[:, None], jnp.exp(theirs) * (theirs - ours), 0.0)
        total += terms.sum(-1).mean(1)
    return total


def mean_by_row(
    values: Float[Array, "B P"], weights: Float[Array, "B P"]
) -> Float[Array, " B"]:
    """Return the weighted mean of each row; 0 if all of its weights are 0."""
    return (values * weights).sum(1) / jnp.maximum(weights.sum(1), 1.0)
