"""What the encoder takes of a few texts: ids, segments and mask, padded."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Int

from bert_jax.config import BertConfig
from bert_jax.data.buckets import assign_buckets
from bert_jax.model.inputs import padded_rows
from bert_jax.tokenization import Tokenizer

Inputs: TypeAlias = tuple[
    Int[np.ndarray, "B T"], Int[np.ndarray, "B T"], Bool[np.ndarray, "B T"]
]
"""`input_ids`, `segment_ids` and `attention_mask`."""


def joined(
    tokenizer: Tokenizer,
    config: BertConfig,
    first: list[int],
    second: list[int] | None = None,
) -> tuple[list[int], int]:
    """[CLS] first [SEP], or [CLS] first [SEP] second [SEP]; where second begins.

    Raises:
        ValueError: they are longer than the model takes.
    """
    ids = [tokenizer.cls_id, *first, tokenizer.sep_id]
    boundary = len(ids)
    if second is not None:
        ids += [*second, tokenizer.sep_id]
    if len(ids) > config.max_position_embeddings:
        raise ValueError(
            f"The text has {len(ids)} tokens, [CLS] and [SEP] among them; the "
            f"model takes {config.max_position_embeddings}. Shorten it."
        )
    return ids, boundary


def padded(
    tokenizer: Tokenizer,
    config: BertConfig,
    rows: Sequence[tuple[list[int], int]],
    size: int,
) -> Inputs:
    """Rows of one bucket, as `joined` makes them, and empty ones up to `size`."""
    most = np.array([max(len(ids) for ids, _ in rows)])
    length = int(assign_buckets(most, config.max_position_embeddings)[0])
    return padded_rows(rows, (size, length), tokenizer.pad_id)
