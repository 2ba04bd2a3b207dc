"""Pairs → rows of fixed width, one pair a row: [CLS] A [SEP] B [SEP] [PAD] …

A pair without a second segment is [CLS] A [SEP].
"""

import numpy as np
from jaxtyping import Integer, Shaped

from bert_jax.data.pairs import Pairs


def pack(
    tokens: Integer[np.ndarray, " M"],
    pairs: Pairs,
    dtype: np.dtype[np.void],
    cls_id: int,
    sep_id: int,
    pad_id: int,
) -> Shaped[np.ndarray, " N"]:
    """Rows of `dtype`, which must be wide enough for every pair."""
    rows = np.zeros(len(pairs.label), dtype)
    position = np.arange(dtype["tokens"].shape[0], dtype=np.int32)
    second = pairs.first_end - pairs.first_start + 2
    alone = pairs.label == -1
    end = second + pairs.second_end - pairs.second_start + ~alone
    assert not len(end) or end.max() <= len(position)
    # Where in `tokens` each position of a row reads from, were there no special ones.
    source = np.where(
        position < second[:, None],
        (pairs.first_start - 1).astype(np.int32)[:, None] + position,
        (pairs.second_start - second).astype(np.int32)[:, None] + position,
    )
    filled = tokens.take(source, mode="clip")
    filled[position >= end[:, None]] = pad_id
    filled[:, 0] = cls_id
    every = np.arange(len(rows))
    filled[every, second - 1] = filled[every, end - 1] = sep_id
    rows["tokens"] = filled
    rows["second"][:, 0] = second
    rows["end"][:, 0] = end
    rows["next_sentence_label"][:, 0] = pairs.label
    return rows
