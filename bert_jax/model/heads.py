"""What stands on the encoder: pooler, masked LM and next sentence."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from bert_jax.config import BertConfig
from bert_jax.model.layers import activation, dense, layer_norm


def gather_positions(
    hidden: Float[Array, "B T D"], positions: Int[Array, "B P"]
) -> Float[Array, "B P D"]:
    """The hidden states at the given positions.

    By a product with one-hot rows: its gradient is a product too, where that of an
    index would be a scatter. At the highest precision, since nothing is computed.
    """
    chosen = jax.nn.one_hot(positions, hidden.shape[1], dtype=hidden.dtype)
    return jnp.einsum(
        "BPT,BTD->BPD", chosen, hidden, precision=jax.lax.Precision.HIGHEST
    )


class Pooler(nn.Module):
    """A tanh layer on the hidden state of [CLS]."""

    config: BertConfig

    @nn.compact
    def __call__(self, hidden: Float[Array, "*shape D"]) -> Float[Array, "*shape D"]:
        return jnp.tanh(dense(self.config.hidden_size, self.config, "dense")(hidden))


class MaskedLM(nn.Module):
    """Hidden states to scores over the vocabulary, through the tied token table."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "B P D"], token_table: Float[Array, "V D"]
    ) -> Float[Array, "B P V"]:
        c = self.config
        hidden = activation(c)(dense(c.hidden_size, c, "dense")(hidden))
        hidden = layer_norm(c, "layer_norm")(hidden).astype(c.dtype)
        scores = jnp.einsum(
            "BPD,VD->BPV",
            hidden,
            token_table.astype(c.dtype),
            preferred_element_type=jnp.float32,
        )
        return scores + self.param("bias", nn.initializers.zeros, (c.vocab_size,))


class NextSentence(nn.Module):
    """Pooled [CLS] to two float32 scores: the second segment follows, or is random."""

    config: BertConfig

    @nn.compact
    def __call__(self, pooled: Float[Array, "*shape D"]) -> Float[Array, "*shape 2"]:
        return dense(2, self.config, "dense")(pooled).astype(jnp.float32)
