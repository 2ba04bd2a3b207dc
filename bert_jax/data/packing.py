"""Build rows of fixed width from pairs: one pair in a row or, by choice, several.

A pair is [CLS] A [SEP] B [SEP], or [CLS] A [SEP] if it has no second segment. [PAD]
fills the rest of the row.
"""

import bisect
from collections.abc import Iterator

import numpy as np
from jaxtyping import Int64, Integer, Shaped

from bert_jax.data.pairs import PairSpans

_TOKENS_PER_PAIR = 32
_POSITIONS_PER_BLOCK = 1 << 18


def max_pairs_per_row(sequence_length: int) -> int:
    """Return the largest number of pairs in a packed row: 4 at 128, 16 at 512.

    This fills a row if pairs have 32 tokens on average, as in documents of a few
    sentences. A larger number would add 7 bytes per pair to every row.
    """
    return max(4, sequence_length // _TOKENS_PER_PAIR)


def build_rows(
    tokens: Integer[np.ndarray, " M"],
    pairs: PairSpans,
    dtype: np.dtype[np.void],
    cls_id: int,
    sep_id: int,
    pad_id: int,
) -> Shaped[np.ndarray, " N"]:
    """Return one row of `dtype` for each pair; no pair may be longer than a row."""
    rows = np.zeros(len(pairs.label), dtype)
    position = np.arange(dtype["tokens"].shape[0], dtype=np.int32)
    # The position of B, and one past the last [SEP]; without B there is one [SEP].
    second = pairs.first_end - pairs.first_start + 2
    end = second + pairs.second_end - pairs.second_start + (pairs.label != -1)
    assert not len(end) or end.max() <= len(position)
    for block in _blocks(len(rows), len(position)):
        b, e = second[block, None], end[block, None]
        # The index into `tokens` of each position; special positions are overwritten. A
        # begins at position 1, behind [CLS]. In int32: a chunk has fewer tokens.
        source = np.where(
            position < b,
            (pairs.first_start[block, None] - 1).astype(np.int32) + position,
            (pairs.second_start[block, None] - b).astype(np.int32) + position,
        )
        # Positions of padding may point behind the last token.
        filled = tokens.take(source, mode="clip")
        filled[position >= e] = pad_id
        filled[:, 0] = cls_id
        np.put_along_axis(filled, np.concatenate([b, e], 1) - 1, sep_id, 1)
        rows["tokens"][block] = filled
    rows["second"][:, 0] = second
    rows["end"][:, 0] = end
    rows["next_sentence_label"][:, 0] = pairs.label
    return rows


def _blocks(num_rows: int, width: int) -> Iterator[slice]:
    """Yield slices of rows whose arrays of positions take some MB of memory."""
    size = max(_POSITIONS_PER_BLOCK // width, 1)
    return (slice(start, start + size) for start in range(0, num_rows, size))


def pack_pairs(
    rows: Shaped[np.ndarray, " N"], dtype: np.dtype[np.void], pad_id: int
) -> Shaped[np.ndarray, " R"]:
    """Pack rows of one pair each into fewer rows of `dtype` with several pairs.

    No pair is changed or lost. The pairs of a row are placed one after another from
    position 0, in their original order; rows are ordered by their first pair. The rows
    that are given may be narrower.
    """
    (width,), (max_pairs,) = dtype["tokens"].shape, dtype["end"].shape
    length = rows["end"][:, 0].astype(np.int64)
    row = assign_rows(length, width, max_pairs)
    # Sort the pairs by row. The slot of a pair is its index among the pairs of its row,
    # its offset is the number of tokens before it in the row.
    order = np.argsort(row, kind="stable")
    begins = np.searchsorted(row[order], row[order])
    before = np.cumsum(length[order]) - length[order]
    slot, offset = np.empty((2, len(rows)), np.int64)
    slot[order] = np.arange(len(rows)) - begins
    offset[order] = before - before[begins]

    packed = np.zeros(len(np.unique(row)), dtype)
    # Copy the real tokens of each pair to its offset.
    position = np.arange(rows["tokens"].shape[1])
    tokens = np.full((len(packed), width), pad_id, dtype["tokens"].base)
    for block in _blocks(len(rows), len(position)):
        real = position < length[block, None]
        target = (row * width + offset)[block, None] + position
        tokens.reshape(-1)[target[real]] = rows["tokens"][block][real]
    packed["tokens"] = tokens
    for name in ("first", "second", "end"):
        packed[name][row, slot] = rows[name][:, 0] + offset
    # A slot without a pair has label -1, which no loss counts, and ends of 0.
    packed["next_sentence_label"] = -1
    packed["next_sentence_label"][row, slot] = rows["next_sentence_label"][:, 0]
    return packed


def assign_rows(
    length: Int64[np.ndarray, " N"], width: int, max_pairs: int
) -> Int64[np.ndarray, " N"]:
    """Return the row of each pair, by best fit decreasing (Johnson et al. 1974).

    Beginning with the longest, each pair goes to the row in which it leaves the least
    room, or to a new row if it fits in none. A row holds at most `max_pairs`. The
    result depends on the lengths alone.
    """
    row = np.empty(len(length), np.int64)
    # The open rows by room; of equal ones, the last that took a pair is the first. Each
    # is (room, minus the turn of its last pair, row, number of pairs).
    rows: list[tuple[int, int, int, int]] = []
    num_rows = 0
    for turn, pair in enumerate(np.argsort(-length, kind="stable").tolist()):
        size = int(length[pair])
        # A shorter tuple is first among equals: the row with the least room that fits.
        place = bisect.bisect_left(rows, (size,))
        if place < len(rows):
            room, _, number, num_pairs = rows.pop(place)
        else:
            room, number, num_pairs = width, num_rows, 0
            num_rows += 1
        row[pair] = number
        left = room - size
        # A full row is not looked at again, which keeps the list short.
        if left and num_pairs + 1 < max_pairs:
            bisect.insort(rows, (left, -turn, number, num_pairs + 1))
    # Renumber the rows in the order of their first pairs.
    _, first, index = np.unique(row, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[index].astype(np.int64)
