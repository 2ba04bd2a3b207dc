"""The heads of pretraining, and what they read from the hidden states."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from bert_jax.config import BertConfig
from bert_jax.model.layers import (
    Dense,
    LayerNorm,
    activation,
    add_bias,
    at_least_float32,
    parameter,
)

_MIN_NORM = 1e-12  # a zero vector stays zero, as in sentence-transformers


def gather_positions(
    hidden: Float[Array, "B T D"], positions: Int[Array, "B P"]
) -> Float[Array, "B P D"]:
    """Return the hidden states at the given positions.

    By a product with one-hot rows, whose gradient is a product too; the gradient of an
    index would be a scatter. The highest precision makes it an exact copy.
    """
    one_hot = jax.nn.one_hot(positions, hidden.shape[1], dtype=hidden.dtype)
    return jnp.einsum(
        "BPT,BTD->BPD", one_hot, hidden, precision=jax.lax.Precision.HIGHEST
    )


class Pooler(nn.Module):
    """A dense layer and its activation, in BERT tanh, on the hidden state of [CLS]."""

    config: BertConfig

    @nn.compact
    def __call__(self, hidden: Float[Array, "*shape D"]) -> Float[Array, "*shape D"]:
        dense = Dense(self.config.hidden_size, self.config, name="dense")
        return activation(self.config.pooler_act)(dense(hidden))


class MaskedLM(nn.Module):
    """Scores over the vocabulary for hidden states, by the tied token embeddings."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "B P D"], token_table: Float[Array, "V D"]
    ) -> Float[Array, "B P V"]:
        c = self.config
        hidden = activation(c.hidden_act)(Dense(c.hidden_size, c, name="dense")(hidden))
        hidden = LayerNorm(c, name="layer_norm")(hidden).astype(c.dtype)
        scores = jnp.einsum(
            "BPD,VD->BPV",
            hidden,
            token_table.astype(c.dtype),
            preferred_element_type=jnp.promote_types(hidden.dtype, jnp.float32),
        )
        bias = parameter(self, "bias", nn.initializers.zeros, (c.vocab_size,))
        return add_bias(scores, bias, c.dtype)


class NextSentence(nn.Module):
    """Two float32 scores for a pooled [CLS]: the second segment follows, is random."""

    config: BertConfig

    @nn.compact
    def __call__(self, pooled: Float[Array, "*shape D"]) -> Float[Array, "*shape 2"]:
        return at_least_float32(Dense(2, self.config, name="dense")(pooled))


def mean_of_tokens(
    hidden: Float[Array, "B T D"], attention_mask: Bool[Array, "B T"]
) -> Float[Array, "B D"]:
    """Return the mean hidden state of the real tokens, [CLS] and [SEP] included."""
    weights = attention_mask.astype(jnp.float32)[:, :, None]
    total = (at_least_float32(hidden) * weights).sum(1)
    return (total / jnp.maximum(weights.sum(1), 1.0)).astype(hidden.dtype)


def unit(vectors: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    """Return vectors of length 1; a zero vector stays zero."""
    squares = jnp.sum(vectors**2, axis=-1, keepdims=True)
    # The square root has no derivative at 0.
    return vectors / jnp.sqrt(jnp.maximum(squares, _MIN_NORM**2))
