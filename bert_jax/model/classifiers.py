"""The heads of fine-tuning, by the names of `config.head`."""

from typing import NamedTuple

import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from bert_jax.config import BertConfig
from bert_jax.config.model import Params
from bert_jax.model.layers import Dense, Dropout, at_least_float32


def num_outputs(config: BertConfig) -> int:
    """Return the number of scores of the head per text, token or choice.

    Raise ValueError if the head has no classes, or `labels` is empty.
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


def with_targets(
    config: BertConfig, params: Params, mean: float = 0.0, deviation: float = 1.0
) -> tuple[BertConfig, Params]:
    """Return a model of numbers whose scores have another mean and deviation.

    Its numbers are the same: kernel and bias of the classifier are changed with them.
    By default, a score is then the number itself.
    """
    before = config.target_mean, config.target_deviation
    if before == (mean, deviation):
        return config, params
    factor, shift = before[1] / deviation, (before[0] - mean) / deviation
    dense = {k: np.float64(v) for k, v in params["classifier"]["dense"].items()}
    kernel, bias = dense["kernel"] * factor, dense["bias"] * factor + shift
    scaled = {"kernel": np.float32(kernel), "bias": np.float32(bias)}
    config = config.changed(target_mean=mean, target_deviation=deviation)
    return config, params | {"classifier": {"dense": scaled}}
