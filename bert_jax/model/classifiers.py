"""The heads of fine-tuning, by the names of `config.head`."""

from flax import linen as nn
from jaxtyping import Array, Float

from bert_jax.config import BertConfig
from bert_jax.model.layers import Dense, Dropout, at_least_float32


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
        if c.head != "question_answering":  # without dropout, as in the code of 2018
            inputs = Dropout(c.hidden_dropout_prob)(inputs, deterministic)
        dense = Dense(num_outputs(c), c, truncated=False, name="dense")
        return at_least_float32(dense(inputs))


CLASSIFIERS: dict[str, type[nn.Module]] = {
    "sequence_classification": Classifier,
    "token_classification": Classifier,
    "question_answering": Classifier,
    "multiple_choice": Classifier,
}
