"""The heads on top of the encoder: for pretraining and for fine-tuning."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from bert_jax.config import BertConfig
from bert_jax.model.layers import Dropout, LayerNorm, activation, dense


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
    """A tanh layer on the hidden state of [CLS]."""

    config: BertConfig

    @nn.compact
    def __call__(self, hidden: Float[Array, "*shape D"]) -> Float[Array, "*shape D"]:
        return jnp.tanh(dense(self.config.hidden_size, self.config, "dense")(hidden))


class MaskedLM(nn.Module):
    """Scores over the vocabulary for hidden states, by the tied token embeddings."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "B P D"], token_table: Float[Array, "V D"]
    ) -> Float[Array, "B P V"]:
        c = self.config
        hidden = activation(c)(dense(c.hidden_size, c, "dense")(hidden))
        hidden = LayerNorm(c, name="layer_norm")(hidden).astype(c.dtype)
        scores = jnp.einsum(
            "BPD,VD->BPV",
            hidden,
            token_table.astype(c.dtype),
            preferred_element_type=jnp.float32,
        )
        return scores + self.param("bias", nn.initializers.zeros, (c.vocab_size,))


class NextSentence(nn.Module):
    """Two float32 scores for a pooled [CLS]: the second segment follows, is random."""

    config: BertConfig

    @nn.compact
    def __call__(self, pooled: Float[Array, "*shape D"]) -> Float[Array, "*shape 2"]:
        return dense(2, self.config, "dense")(pooled).astype(jnp.float32)


def mean_of_tokens(
    hidden: Float[Array, "B T D"], attention_mask: Bool[Array, "B T"]
) -> Float[Array, "B D"]:
    """Return the mean hidden state of the real tokens, [CLS] and [SEP] included."""
    weights = attention_mask.astype(jnp.float32)[:, :, None]
    total = (hidden.astype(jnp.float32) * weights).sum(1)
    return (total / jnp.maximum(weights.sum(1), 1.0)).astype(hidden.dtype)


def num_outputs(config: BertConfig) -> int:
    """Return the number of scores of the head per text, token or choice.

    Raises:
        ValueError: the head has no classes, or `labels` is empty.
    """
    fixed = {"question_answering": 2, "multiple_choice": 1}
    if config.head in fixed:
        return fixed[config.head]
    if not config.head.endswith("_classification"):
        raise ValueError(f"head={config.head} has no classes; choose another head.")
    if not config.labels:
        raise ValueError(
            f"labels is empty and head={config.head}; name its classes in labels."
        )
    return len(config.labels)


def _scores(
    config: BertConfig, inputs: Float[Array, "*shape D"], deterministic: bool
) -> Float[Array, "*shape C"]:
    """Apply dropout, then a dense layer that becomes part of the calling module."""
    inputs = Dropout(config.hidden_dropout_prob)(inputs, deterministic)
    scores = dense(num_outputs(config), config, "dense")(inputs)
    return scores.astype(jnp.float32)


class SequenceClassifier(nn.Module):
    """Float32 scores of the classes for a pooled text (Devlin et al. 2018, §4.1)."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, pooled: Float[Array, "B D"], deterministic: bool = True
    ) -> Float[Array, "B C"]:
        return _scores(self.config, pooled, deterministic)


class TokenClassifier(nn.Module):
    """Float32 scores of the tags for each token (Devlin et al. 2018, §5.3)."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "B T D"], deterministic: bool = True
    ) -> Float[Array, "B T C"]:
        return _scores(self.config, hidden, deterministic)


class QuestionAnswering(nn.Module):
    """Float32 scores that an answer starts, and ends, at each token (§4.2).

    Without dropout, as in the code of 2018.
    """

    config: BertConfig

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "B T D"], deterministic: bool = True
    ) -> Float[Array, "B T 2"]:
        return _scores(self.config, hidden, deterministic=True)


class MultipleChoice(nn.Module):
    """One float32 score for a pooled choice; the softmax is over the choices (§4.4)."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, pooled: Float[Array, "B D"], deterministic: bool = True
    ) -> Float[Array, "B 1"]:
        return _scores(self.config, pooled, deterministic)


CLASSIFIERS: dict[str, type[nn.Module]] = {
    "sequence_classification": SequenceClassifier,
    "token_classification": TokenClassifier,
    "question_answering": QuestionAnswering,
    "multiple_choice": MultipleChoice,
}
POOLED_HEADS = ("sequence_classification", "multiple_choice")
"""Heads that take one vector per text; the others take every token's vector."""
