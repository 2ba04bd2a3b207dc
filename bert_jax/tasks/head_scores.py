"""What a fine-tuned head says of a batch of tokenized examples."""

import jax.numpy as jnp
from jaxtyping import Array, Key

from bert_jax.config import BertConfig
from bert_jax.config.model import Params
from bert_jax.model.bert import compute
from bert_jax.model.inputs import inputs_of_tokenized
from bert_jax.tasks.task import DeviceBatch

PADDING_SCORE = -1e9
"""A finite score to which softmax gives probability 0."""


def head_scores(
    model: BertConfig,
    params: Params,
    batch: DeviceBatch,
    dropout_key: Key[Array, ""] | None = None,
) -> Array:
    """Return the head's float32 scores of a batch that `TokenizedExamples.gather` made.

    Returns:
        [B, C] for texts, [B, T, C] for tokens, [B, C] for choices, of which those that
        a row does not have get a score with probability 0.
    """
    inputs = inputs_of_tokenized(batch)
    scores: Array = compute(
        model, params, "classifier_scores", inputs, dropout_key=dropout_key
    )
    if batch["tokens"].ndim == 2:
        return scores
    is_there = batch["second"] > 0  # as `MultipleChoiceTask.tokenize` says
    return jnp.where(is_there, scores[:, 0].reshape(is_there.shape), PADDING_SCORE)
