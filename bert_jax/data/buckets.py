"""Rows of unlike length, padded to one of few lengths, so that few are compiled."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int, Int64

from bert_jax.config.checks import require_batch_size
from bert_jax.data.pipeline import permute, row_numbers

LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Tokens that a row is padded to; past the last, multiples of `LENGTH_STEP`."""
LENGTH_STEP = 256
_BUCKET_MULTIPLE = 8
"""Lengths chosen by the data are multiples of this."""
_WINDOW = 64
"""Batches that training rows are sorted by length within."""


def assign_buckets(
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
    require_batch_size(batch_size)
    for length in np.unique(buckets):
        rows = np.flatnonzero(buckets == length)
        for start in range(0, len(rows), batch_size):
            yield int(length), rows[start : start + batch_size]


def choose_bucket_boundaries(
    lengths: Int[np.ndarray, " N"], number: int, longest: int
) -> tuple[int, ...]:
    """The lengths to pad to, at most `number`, that rows of `lengths` waste least on.

    The cheapest way to cover all shorter rows is looked up for each last length, with
    one length more at a time: exact, and at most (longest / 8)² steps each.

    Args:
        longest: tokens that the model takes; no row is padded to more.
    """
    ends = np.arange(
        _BUCKET_MULTIPLE,
        max(int(lengths.max()), 1) + _BUCKET_MULTIPLE,
        _BUCKET_MULTIPLE,
    )
    rows = np.searchsorted(np.sort(lengths), ends, side="right")  # that each end holds
    shorter = np.concatenate([[0], rows])
    # cost[i, j]: of padding the rows between ends i - 1 and j to end j.
    cost = (rows[None, :] - shorter[:-1, None]) * ends.astype(np.float64)
    cost[np.tril_indices(len(ends), -1)] = np.inf
    best, chosen = cost[0], [np.zeros(len(ends), np.int64)]
    for _ in range(min(number, len(ends)) - 1):
        total = np.concatenate([[0.0], best[:-1]])[:, None] + cost
        chosen.append(total.argmin(axis=0))
        best = total.min(axis=0)
    ladder, place = set(), len(ends) - 1
    for starts in reversed(chosen):
        ladder.add(min(int(ends[place]), longest))
        place = int(starts[place]) - 1
        if place < 0:
            break
    return tuple(sorted(ladder))


def bucketed_batch(
    buckets: Int[np.ndarray, " N"],
    seed: int,
    step: int,
    num_steps: int,
    batch_size: int,
) -> tuple[int, Int64[np.ndarray, " B"]]:
    """The padded length and the row numbers of a step: a function of (seed, step).

    The endless stream of `pipeline.row_numbers`, each row once an epoch, is cut into
    windows of batches, anew where an epoch begins, so that no row meets itself; a
    window's rows are sorted by the length that they are padded to, cut into batches,
    and the batches shuffled.

    Args:
        buckets: the tokens that each row is padded to.
        num_steps: where the stream ends, and the last window with it.
    """
    size = len(buckets)
    epoch = step * batch_size // size
    start, end = -(-epoch * size // batch_size), -(-(epoch + 1) * size // batch_size)
    window, place = divmod(step - start, _WINDOW)
    first = start + window * _WINDOW
    batches = min(_WINDOW, min(end, num_steps) - first)
    positions = first * batch_size + np.arange(batches * batch_size)
    numbers = row_numbers(size, seed, positions)
    numbers = numbers[np.argsort(buckets[numbers], kind="stable")]
    chosen = int(permute(np.array([place]), batches, seed ^ (first << 32))[0])
    rows = numbers[chosen * batch_size : (chosen + 1) * batch_size]
    return int(buckets[rows].max()), rows
