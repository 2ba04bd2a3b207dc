"""Length buckets: rows are padded to one of few lengths, so that few are compiled."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int, Int64

from bert_jax.config.checks import require_batch_size
from bert_jax.data.pipeline import permute, row_numbers

LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Default bucket boundaries, in tokens; past the last, multiples of `LENGTH_STEP`."""
LENGTH_STEP = 256
_BUCKET_MULTIPLE = 8
"""Boundaries chosen from the data are multiples of this."""
_WINDOW = 64
"""Training rows are sorted by length within windows of this many batches."""


def assign_buckets(
    lengths: Int[np.ndarray, " N"], max_length: int, boundaries: Sequence[int] = LENGTHS
) -> Int64[np.ndarray, " N"]:
    """Return the length that each row is padded to; it depends on that row alone.

    Raise ValueError if a row is longer than `max_length`, the tokens that the model
    accepts. `lengths` are in tokens, [CLS] and [SEP] included; `boundaries` ascend.
    """
    too_long = np.flatnonzero(lengths > max_length)
    if len(too_long):
        raise ValueError(
            f"Row {too_long[0]} has {lengths[too_long[0]]} tokens; the model takes "
            f"{max_length}. Shorten it."
        )
    steps = np.asarray(boundaries, np.int64)
    padded = -(-lengths.astype(np.int64) // LENGTH_STEP) * LENGTH_STEP
    inside = lengths <= steps[-1]
    padded[inside] = steps[np.searchsorted(steps, lengths[inside])]
    return np.minimum(padded, max_length)


def batches_by_bucket(
    buckets: Int[np.ndarray, " N"], batch_size: int, most_tokens: int = 0
) -> Iterator[tuple[int, Int64[np.ndarray, " M"]]]:
    """Yield the padded length and the rows of each batch, the shortest length first.

    Each row is in one batch, in ascending order; the last of a bucket may have fewer
    rows than `batch_size`. With `most_tokens`, a batch has at most the largest power of
    two of rows with no more tokens, but at least one. Raise ValueError if `batch_size`
    is less than 1.
    """
    require_batch_size(batch_size)
    for length in np.unique(buckets):
        size = batch_size
        if most_tokens:
            fitting = max(most_tokens // int(length), 1)
            size = min(size, 1 << (fitting.bit_length() - 1))
        rows = np.flatnonzero(buckets == length)
        for start in range(0, len(rows), size):
            yield int(length), rows[start : start + size]


def choose_bucket_boundaries(
    lengths: Int[np.ndarray, " N"], max_buckets: int, max_length: int
) -> tuple[int, ...]:
    """Return at most `max_buckets` boundaries that minimize the padding of the rows.

    Exact dynamic programming: for k = 1, 2, … boundaries and each last boundary, find
    the cheapest way to cover all shorter rows, in at most (max_length / 8)² steps.
    The lengths are in tokens, and no row is padded to more than `max_length`.
    """
    num_ends = -(-max(int(lengths.max()), 1) // _BUCKET_MULTIPLE)
    ends = _BUCKET_MULTIPLE * np.arange(1, num_ends + 1)
    # rows[j]: the number of rows of at most ends[j] tokens; shorter[i] is rows[i - 1].
    rows = np.searchsorted(np.sort(lengths), ends, side="right")
    shorter = np.concatenate([[0], rows])
    # cost[i, j]: of padding the rows between ends i - 1 and j to end j.
    cost = (rows[None, :] - shorter[:-1, None]) * ends.astype(np.float64)
    cost[np.tril_indices(len(ends), -1)] = np.inf
    # best[j]: the lowest cost of the rows up to end j; each round adds a boundary.
    best, choices = cost[0], [np.zeros(len(ends), np.int64)]
    for _ in range(min(max_buckets, len(ends)) - 1):
        total = np.concatenate([[0.0], best[:-1]])[:, None] + cost
        choices.append(total.argmin(axis=0))
        best = total.min(axis=0)
    # Walk back from the last end through the choices.
    boundaries, place = set(), len(ends) - 1
    while place >= 0:
        boundaries.add(min(int(ends[place]), max_length))
        place = int(choices.pop()[place]) - 1
    return tuple(sorted(boundaries))


def bucketed_batch(
    buckets: Int[np.ndarray, " N"],
    seed: int,
    step: int,
    num_steps: int,
    batch_size: int,
) -> tuple[int, Int64[np.ndarray, " B"]]:
    """Return the padded length and the row numbers of a step, from (seed, step) alone.

    The endless stream of `pipeline.row_numbers`, with each row once an epoch, is cut
    into windows of batches, the last of which ends at `num_steps`. Each epoch starts a
    new window, so that no row occurs twice in a batch unless the batch spans two
    epochs. The rows of a window are sorted by padded length, which `buckets` has of
    each, and cut into batches, and the batches are shuffled.
    """
    size = len(buckets)
    epoch = step * batch_size // size
    start, end = -(-epoch * size // batch_size), -(-(epoch + 1) * size // batch_size)
    window, place = divmod(step - start, _WINDOW)
    first = start + window * _WINDOW
    num_batches = min(_WINDOW, min(end, num_steps) - first)
    positions = first * batch_size + np.arange(num_batches * batch_size)
    numbers = row_numbers(size, seed, positions)
    numbers = numbers[np.argsort(buckets[numbers], kind="stable")]
    chosen = int(permute(np.array([place]), num_batches, seed ^ (first << 32))[0])
    rows = numbers[chosen * batch_size : (chosen + 1) * batch_size]
    return int(buckets[rows].max()), rows
