"""BERT with one of the heads that it is fine-tuned with (Devlin et al. 2018, §4)."""

from typing import Any

from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from bert_jax.config import BertConfig
from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import (
    MultipleChoice,
    Pooler,
    QuestionAnswering,
    SequenceClassifier,
    TokenClassifier,
    mean_of_tokens,
)

CLASSIFIERS: dict[str, type[nn.Module]] = {
    "sequence_classification": SequenceClassifier,
    "token_classification": TokenClassifier,
    "question_answering": QuestionAnswering,
    "multiple_choice": MultipleChoice,
}
SEE_ONE_VECTOR = ("sequence_classification", "multiple_choice")
"""Heads of a whole text; the others see every token."""


class BertForFinetuning(nn.Module):
    """Encoder, pooler where the head sees it, and the head that `config` names.

    Example:
        `BertForFinetuning(config).apply({"params": params}, ids, segments, mask)`
    """

    config: BertConfig

    def setup(self) -> None:
        c = self.config
        self.encoder = Encoder(c)
        if c.head in SEE_ONE_VECTOR and c.pooling == "cls":
            self.pooler = Pooler(c)
        self.classifier = CLASSIFIERS[c.head](c)

    def __call__(
        self,
        input_ids: Int[Array, "B T"],
        segment_ids: Int[Array, "B T"],
        attention_mask: Bool[Array, "B T"],
        deterministic: bool = True,
    ) -> Float[Array, "B ..."]:
        """Float32 scores: [B, C] of texts, [B, T, C] of tokens, [B, 1] of choices.

        A row is a choice where `config.head` is multiple_choice.
        """
        hidden = self.encoder(input_ids, segment_ids, attention_mask, deterministic)
        seen: Any = hidden
        if self.config.head in SEE_ONE_VECTOR:
            mean = self.config.pooling == "mean"
            seen = (
                mean_of_tokens(hidden, attention_mask)
                if mean
                else self.pooler(hidden[:, 0])
            )
        return self.classifier(seen, deterministic)
