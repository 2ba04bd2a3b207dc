"""The heads of fine-tuning, by the names of `config.head`."""

from typing import NamedTuple

from flax import linen as nn
from jaxtyping import Array, Float

from bert_jax.config import BertConfig
from bert_jax.model.layers import Dense, Dropout, at_least_float32


def num_outputs(config: BertConfig) -> int:
    """Return the number of scores of the head per text, token or choice.

    Raises:
        ValueError: the head has no classes, or `labels` is empty.
    """
    if config.head not in CLASSIFIERS:
        raise ValueError(f"head={config.head} has no classes; choose another head.")
    number = CLASSIFIERS[config.head].num_outputs or len(config.labels)
    if not number:
        raise ValueError(
            f"labels is empty and head={config.head}; name its classes in labels."
        )
    return number


class Classifier(nn.Module):
    """Float32 scores: dropout, then a dense layer (Devlin et al. 2018, §4 and §5.3).

    Of the classes for a pooled text, of the tags for each token, that an answer starts
    and ends at each token, or one for a pooled choice. The initial kernel is not cut at
    ±2σ, as all others are: so the first steps learn faster (docs/finetuning.md).
    """

    config: BertConfig

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "*shape D"], deterministic: bool = True
    ) -> Float[Array, "*shape C"]:
        c = self.config
        if CLASSIFIERS[c.head].has_dropout:
            inputs = Dropout(c.hidden_dropout_prob)(inputs, deterministic)
        dense = Dense(num_outputs(c), c, truncated=False, name="dense")
        return at_least_float32(dense(inputs))


class ClassifierHead(NamedTuple):
    """A head, and what it is made with."""

    module: type[nn.Module] = Classifier
    num_outputs: int = 0
    """0: one for each of `labels`."""
    has_dropout: bool = True


CLASSIFIERS = {
    "sequence_classification": ClassifierHead(),
    "token_classification": ClassifierHead(),
    # Without dropout, as in the code of 2018.
    "question_answering": ClassifierHead(num_outputs=2, has_dropout=False),
    "multiple_choice": ClassifierHead(num_outputs=1),
}
