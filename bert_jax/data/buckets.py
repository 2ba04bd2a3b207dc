"""Rows of unlike length, padded to one of few lengths, so that few are compiled."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int, Int64

LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Tokens that a row is padded to; past the last, multiples of `LENGTH_STEP`."""
LENGTH_STEP = 256


def bucket_lengths(
    lengths: Int[np.ndarray, " N"], longest: int, ladder: Sequence[int] = LENGTHS
) -> Int64[np.ndarray, " N"]:
    """The tokens that each row is padded to: its own length decides, and no other's.

    Args:
        lengths: tokens of each row, [CLS] and [SEP] among them.
        longest: tokens that the model takes; no row is padded to more.
        ladder: the lengths to choose from, ascending.

    Raises:
        ValueError: a row is longer than `longest`.
    """
    over = np.flatnonzero(lengths > longest)
    if len(over):
        raise ValueError(
            f"Row {over[0]} has {lengths[over[0]]} tokens; the model takes {longest}. "
            "Shorten it."
        )
    steps = np.asarray(ladder, np.int64)
    padded = -(-lengths.astype(np.int64) // LENGTH_STEP) * LENGTH_STEP
    inside = lengths <= steps[-1]
    padded[inside] = steps[np.searchsorted(steps, lengths[inside])]
    return np.minimum(padded, longest)


def batches_by_bucket(
    buckets: Int[np.ndarray, " N"], batch_size: int
) -> Iterator[tuple[int, Int64[np.ndarray, " M"]]]:
    """The rows of each bucket by the batch, the shortest bucket first.

    Args:
        buckets: the tokens that each row is padded to.
        batch_size: rows of a batch; the last of a bucket may have fewer.

    Yields:
        The padded length, and the numbers of the rows in the order that they came.
        Each row is in one batch.

    Raises:
        ValueError: `batch_size` is less than 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size} must be at least 1.")
    for length in np.unique(buckets):
        rows = np.flatnonzero(buckets == length)
        for start in range(0, len(rows), batch_size):
            yield int(length), rows[start : start + batch_size]
