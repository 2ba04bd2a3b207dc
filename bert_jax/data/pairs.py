"""Sentences → pairs for next sentence prediction (Devlin et al. 2018, A.2).

The tokens of all documents lie one after another in one array. A sentence is a span of
it, and so is a segment, being sentences in a row: pairs are made from lengths alone,
and no token is moved before a row is written.
"""

import bisect
import collections
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int64

NUM_SPECIAL = 3
"""[CLS], and a [SEP] after each segment."""


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Spans of the token array: both segments of each pair, and its label."""

    first_start: Int64[np.ndarray, " N"]
    first_end: Int64[np.ndarray, " N"]
    second_start: Int64[np.ndarray, " N"]
    second_end: Int64[np.ndarray, " N"]
    label: Int64[np.ndarray, " N"]
    """0: the second segment follows the first; 1: it is from another document."""
    dropped: dict[str, int]
    """What was left out, and how much of it."""


def make_pairs(
    documents: Sequence[Sequence[int]],
    sequence_length: int,
    short_probability: float,
    rng: np.random.Generator,
) -> Pairs:
    """Pairs of at most `sequence_length` tokens with their special ones.

    `documents[d]` holds the bounds of d's sentences: sentence s is the span from
    `documents[d][s]` to `documents[d][s + 1]`, and is not empty.

    Sentences are taken in order until they reach a target length, and are parted at
    random into two segments. Half of the time the second is replaced by sentences of
    another document, and its own are put back to begin the next pair. A sentence that
    reaches the target alone always gets a random second segment.
    """
    limit = sequence_length - NUM_SPECIAL
    dropped: collections.Counter[str] = collections.Counter()
    found = [
        pair
        for number in range(len(documents))
        for pair in _pairs_of(documents, number, limit, short_probability, rng, dropped)
    ]
    spans = np.array(found, np.int64).reshape(-1, 5)
    if truncated := _truncate(spans, limit, rng):
        dropped["tokens truncated from pairs"] = truncated
    a, b, c, d, label = spans.T.copy()
    return Pairs(a, b, c, d, label, dict(dropped))


def _pairs_of(
    documents: Sequence[Sequence[int]],
    number: int,
    limit: int,
    short_probability: float,
    rng: np.random.Generator,
    dropped: collections.Counter[str],
) -> Iterator[tuple[int, int, int, int, int]]:
    """The pairs that begin in one document, before truncation."""
    bounds, begin = documents[number], 0
    while begin < len(bounds) - 1:
        target = limit
        if rng.random() < short_probability:
            target = int(rng.integers(2, limit, endpoint=True))
        end = _until(bounds, begin, target)
        middle = begin + 1
        if end > middle:
            middle += int(rng.random() * (end - middle))
        first = bounds[begin], bounds[middle]
        if len(documents) > 1 and (middle == end or rng.random() < 0.5):
            wanted = target - (first[1] - first[0])
            other = _another(documents, number, rng)
            yield *first, *_random_segment(other, wanted, rng), 1
            begin = middle  # what was not used is put back
            continue
        if middle < end:
            yield *first, bounds[middle], bounds[end], 0
        else:
            dropped["sentences without another document"] += 1
        begin = end


def _until(bounds: Sequence[int], begin: int, wanted: int) -> int:
    """The end of the sentences from `begin` on that reach `wanted` tokens, or of all.

    There is at least one of them.
    """
    reached = bisect.bisect_left(bounds, bounds[begin] + wanted, begin + 1)
    return min(reached, len(bounds) - 1)


def _another(
    documents: Sequence[Sequence[int]], number: int, rng: np.random.Generator
) -> Sequence[int]:
    """A document other than that of this number, all with equal chances."""
    drawn = int(rng.random() * (len(documents) - 1))
    return documents[drawn + (drawn >= number)]


def _random_segment(
    bounds: Sequence[int], wanted: int, rng: np.random.Generator
) -> tuple[int, int]:
    """Sentences from a random one on, until `wanted` tokens or the document's end."""
    start = int(rng.random() * (len(bounds) - 1))
    return bounds[start], bounds[_until(bounds, start, wanted)]


def _truncate(
    spans: Int64[np.ndarray, "N 5"], limit: int, rng: np.random.Generator
) -> int:
    """Cut pairs to `limit` tokens, in place; returns how many tokens went.

    One token at a time goes from the longer segment (the second, where they are
    equal), from its front or its back with equal chances. In closed form: the longer
    is cut to the other's length, then both in turn; the fronts' share is binomial.
    """
    first = spans[:, 1] - spans[:, 0]
    second = spans[:, 3] - spans[:, 2]
    excess = np.maximum(first + second - limit, 0)
    uneven = np.minimum(np.abs(first - second), excess)
    from_first = np.where(first > second, uneven, 0) + (excess - uneven) // 2
    for column, removed in ((0, from_first), (2, excess - from_first)):
        front = rng.binomial(removed, 0.5)
        spans[:, column] += front
        spans[:, column + 1] -= removed - front
    return int(excess.sum())
