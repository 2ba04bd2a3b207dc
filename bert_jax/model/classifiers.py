"""The heads of fine-tuning, by the names of `config.head`."""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from bert_jax.config import BertConfig
from bert_jax.model.layers import Dropout, dense


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
