"""Find the rows that contain a sequence of tokens."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Integer

from bert_jax.data.records import Rows

_CHUNK_ROWS = 8192


@dataclasses.dataclass(frozen=True)
class Matches:
    """The rows that contain a sequence of tokens."""

    num_rows: int
    """How many rows contain it."""
    first: list[tuple[int, int]]
    """The numbers of the first of these rows, and where the sequence begins in them."""


def find_tokens(rows: Rows, ids: Sequence[int], limit: int) -> Matches:
    """Find the rows that contain all of `ids` in this order, without a gap.

    The rows are read in chunks, so that the memory does not depend on their number.

    Args:
        ids: at least one.
        limit: the number of rows to name.
    """
    assert ids
    num_rows, first = 0, list[tuple[int, int]]()
    for start in range(0, len(rows), _CHUNK_ROWS):
        numbers = np.arange(start, min(start + _CHUNK_ROWS, len(rows)), dtype=np.int64)
        starts = sequence_starts(rows.gather(numbers)["tokens"], ids)
        matching = np.flatnonzero(starts.any(axis=1))
        num_rows += len(matching)
        for number in matching[: limit - len(first)].tolist():
            first.append((start + number, int(starts[number].argmax())))
    return Matches(num_rows, first)


def sequence_starts(
    tokens: Integer[np.ndarray, "B T"], ids: Sequence[int]
) -> Bool[np.ndarray, "B starts"]:
    """Return at which positions of each row the sequence `ids` begins."""
    last = tokens.shape[1] - len(ids)
    if last < 0:
        return np.zeros((len(tokens), 1), bool)
    starts = tokens[:, : last + 1] == ids[0]
    # Compare the next tokens only at the few positions that are left.
    row, position = np.nonzero(starts)
    for offset, token in enumerate(ids[1:], 1):
        same = tokens[row, position + offset] == token
        row, position = row[same], position[same]
    starts[:] = False
    starts[row, position] = True
    return starts
