"""Pairs → rows of fixed width, one pair a row or, by choice, several.

A pair is [CLS] A [SEP] B [SEP], and without a second segment [CLS] A [SEP]. What
follows the last one is [PAD].
"""

import bisect
import collections

import numpy as np
from jaxtyping import Int64, Integer, Shaped

from bert_jax.data.pairs import Pairs

_TOKENS_A_PAIR = 32


def max_pairs_per_row(sequence_length: int) -> int:
    """How many pairs a packed row has places for, 7 bytes each: 4 at 128, 16 at 512.

    So many fill a row if they have 32 tokens on average, which documents of a few
    sentences do; more places would be empty weight in every row.
    """
    return max(4, sequence_length // _TOKENS_A_PAIR)


def pack(
    tokens: Integer[np.ndarray, " M"],
    pairs: Pairs,
    dtype: np.dtype[np.void],
    cls_id: int,
    sep_id: int,
    pad_id: int,
) -> Shaped[np.ndarray, " N"]:
    """Rows of `dtype`, which must be wide enough for every pair, one pair a row."""
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


def pack_pairs(
    rows: Shaped[np.ndarray, " N"], dtype: np.dtype[np.void], pad_id: int
) -> Shaped[np.ndarray, " R"]:
    """The pairs of rows that hold one each, in fewer rows of `dtype` for several.

    No pair is changed or lost. They lie one after another from position 0 on, in the
    order they came in, and so do the rows by the first pair of each.
    """
    (width,), (most,) = dtype["tokens"].shape, dtype["end"].shape
    length = rows["end"][:, 0].astype(np.int64)
    row = choose_rows(length, width, most)
    order = np.argsort(row, kind="stable")
    begins = np.searchsorted(row[order], row[order])  # where in `order` its row does
    before = np.cumsum(length[order]) - length[order]
    place = np.empty((2, len(rows)), np.int64)
    place[:, order] = np.arange(len(rows)) - begins, before - before[begins]
    slot, offset = place

    packed = np.zeros(len(np.unique(row)), dtype)
    position = np.arange(width)
    real = position < length[:, None]
    tokens = np.full((len(packed), width), pad_id, dtype["tokens"].base)
    target = (row * width + offset)[:, None] + position
    tokens.reshape(-1)[target[real]] = rows["tokens"][real]
    packed["tokens"] = tokens
    for name in ("first", "second", "end"):
        packed[name][row, slot] = rows[name][:, 0] + offset
    packed["next_sentence_label"] = -1
    packed["next_sentence_label"][row, slot] = rows["next_sentence_label"][:, 0]
    return packed


def choose_rows(
    length: Int64[np.ndarray, " N"], width: int, most: int
) -> Int64[np.ndarray, " N"]:
    """The row of each pair, at most `most` in one, by best fit decreasing.

    From the longest pair on, each goes where it leaves the least room, or else into a
    new row (Johnson et al. 1974). A function of the lengths alone.
    """
    row = np.empty(len(length), np.int64)
    rooms: list[int] = []  # what is left in rows that may take more, from small on
    rows: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)
    count = 0
    for pair in np.argsort(-length, kind="stable").tolist():
        size = int(length[pair])
        place = bisect.bisect_left(rooms, size)
        if place < len(rooms):
            room = rooms[place]
            number, held = rows[room].pop()
            if not rows[room]:
                del rooms[place]
        else:
            room, number, held = width, count, 0
            count += 1
        row[pair] = number
        left = room - size
        if left and held + 1 < most:
            if not rows[left]:
                bisect.insort(rooms, left)
            rows[left].append((number, held + 1))
    _, first, number_of = np.unique(row, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number_of].astype(np.int64)
