"""Texts as inputs of the encoder, for a model of one's own."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from bert_jax.config.checks import require
from bert_jax.data.examples import from_rows, join_pair
from bert_jax.inference.arguments import require_texts_or_pairs
from bert_jax.model.inputs import Inputs, inputs_of_tokenized
from bert_jax.tokenization import Tokenizer


def text_inputs(
    tokenizer: Tokenizer, texts: Sequence[str | tuple[str, str]], length: int
) -> Inputs:
    """Return a row of `length` tokens for each text or pair of texts.

    A row is [CLS] A [SEP], or [CLS] A [SEP] B [SEP] with segment 1 from B on; longer
    texts are truncated, of a pair the longer one first, and shorter rows
    are padded with the id of [PAD].
    Names of special tokens in a text are plain text.

    Args:
        length: T; at most the model's `max_position_embeddings`.

    Returns:
        int32 `input_ids` and `segment_ids`, and boolean `attention_mask`, each [B, T].

    Raises:
        ValueError: there is no text, some are pairs and others not, or `length` is less
            than 8.
    """
    parts = require_texts_or_pairs("texts", texts)
    require(bool(parts), "texts is empty; give at least one.")
    is_whole = isinstance(length, int | np.integer) and length >= 8
    require(is_whole, f"length={length!r:.80} must be at least 8, and a whole number.")
    columns = [tokenizer.encode_each(column) for column in zip(*parts, strict=True)]
    rows = [
        join_pair(tokenizer, *segments, max_length=length)
        for segments in zip(*columns, strict=True)
    ]
    numbers = np.arange(len(rows), dtype=np.int32)
    inputs = inputs_of_tokenized(from_rows(rows, numbers).gather(numbers, length))
    ids = jnp.where(inputs.attention_mask, inputs.input_ids, tokenizer.pad_id)
    return dataclasses.replace(inputs, input_ids=ids)
