"""Sentences → pairs of segments: the second follows or is random (Devlin et al. 2018,
A.2), or is swapped with the first (Lan et al. 2019, §3.1), or there is none.

The tokens of all documents lie one after another in one array. A sentence is a span of
it, and so is a segment, being sentences in a row: pairs are made from lengths alone,
and no token is moved before a row is written.
"""

import bisect
import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Int64

Objective = Literal["nsp", "sop", "none"]
Span = tuple[int, int, int, int, int]
"""Start and end of the first segment and of the second, and the label."""

NUM_SPECIAL: dict[Objective, int] = {"nsp": 3, "sop": 3, "none": 2}
"""[CLS], and a [SEP] after each segment."""


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Spans of the token array: both segments of each pair, and its label."""

    first_start: Int64[np.ndarray, " N"]
    first_end: Int64[np.ndarray, " N"]
    second_start: Int64[np.ndarray, " N"]
    second_end: Int64[np.ndarray, " N"]
    label: Int64[np.ndarray, " N"]
    """0: the second segment follows the first. 1: it is from another document (nsp),
    or the first follows the second (sop). -1: there is none, and its span is empty."""
    dropped: dict[str, int]
    """What was left out, and how much of it."""


def make_pairs(
    documents: Sequence[Sequence[int]],
    sequence_length: int,
    short_probability: float,
    rng: np.random.Generator,
    objective: Objective = "nsp",
) -> Pairs:
    """Pairs of at most `sequence_length` tokens with their special ones.

    `documents[d]` holds the bounds of d's sentences: sentence s is the span from
    `documents[d][s]` to `documents[d][s + 1]`, and is not empty.

    Sentences are taken in order until they reach a target length: that of the row, or
    now and then a shorter one.
    """
    limit = sequence_length - NUM_SPECIAL[objective]
    dropped: collections.Counter[str] = collections.Counter()

    def target() -> int:
        short = rng.random() < short_probability
        return int(rng.integers(2, limit, endpoint=True)) if short else limit

    found: list[Span] = []
    for number, bounds in enumerate(documents):
        if objective == "nsp":
            found += _next_sentences(documents, number, target, rng, dropped)
        elif objective == "sop":
            found += _ordered_sentences(bounds, target, rng, dropped)
        else:
            found += _segments(bounds, limit, target)
    spans = np.array(found, np.int64).reshape(-1, 5)
    if truncated := _truncate(spans, limit, rng):
        dropped["tokens truncated from pairs"] = truncated
    a, b, c, d, label = spans.T.copy()
    return Pairs(a, b, c, d, label, dict(dropped))


def _next_sentences(
    documents: Sequence[Sequence[int]],
    number: int,
    target: Callable[[], int],
    rng: np.random.Generator,
    dropped: collections.Counter[str],
) -> Iterator[Span]:
    """The pairs that begin in one document, before truncation.

    Sentences that reach the target are parted at random into two segments. Half of the
    time the second is replaced by sentences of another document, and its own are put
    back to begin the next pair. A sentence that reaches the target alone always gets a
    random second segment.
    """
    bounds, begin = documents[number], 0
    while begin < len(bounds) - 1:
        aim = target()
        end = _until(bounds, begin, aim)
        middle = _between(begin, end, rng)
        first = bounds[begin], bounds[middle]
        if len(documents) > 1 and (middle == end or rng.random() < 0.5):
            wanted = aim - (first[1] - first[0])
            other = _another(documents, number, rng)
            yield *first, *_random_segment(other, wanted, rng), 1
            begin = middle  # what was not used is put back
            continue
        if middle < end:
            yield *first, bounds[middle], bounds[end], 0
        else:
            dropped["sentences without another document"] += 1
        begin = end


def _ordered_sentences(
    bounds: Sequence[int],
    target: Callable[[], int],
    rng: np.random.Generator,
    dropped: collections.Counter[str],
) -> Iterator[Span]:
    """A document's pairs of neighbouring segments, half of them swapped.

    A sentence that reaches the target alone is paired with the one after it.
    """
    begin, last = 0, len(bounds) - 1
    while begin < last:
        end = max(_until(bounds, begin, target()), begin + 2)
        if end > last:
            dropped["sentences without a neighbour"] += 1
            return
        middle = _between(begin, end, rng)
        first = bounds[begin], bounds[middle]
        second = bounds[middle], bounds[end]
        swapped = rng.random() < 0.5
        yield (*second, *first, 1) if swapped else (*first, *second, 0)
        begin = end


def _segments(
    bounds: Sequence[int], limit: int, target: Callable[[], int]
) -> Iterator[Span]:
    """A document's sentences, as many in a segment as fit into the target.

    Nothing is lost: a sentence longer than a row goes on in the next segment.
    """
    begin, start = 0, bounds[0]  # the sentence, and the token, that comes next
    while begin < len(bounds) - 1:
        end = bisect.bisect_right(bounds, start + target(), begin + 1) - 1
        if end > begin:
            stop, begin = bounds[end], end
        else:  # not one fits, but its own row may hold it
            stop = min(bounds[begin + 1], start + limit)
            begin += stop == bounds[begin + 1]
        yield start, stop, stop, stop, -1
        start = stop


def _between(begin: int, end: int, rng: np.random.Generator) -> int:
    """A place in (begin, end), all with equal chances; `end` if there is none."""
    middle = begin + 1
    return middle + int(rng.random() * (end - middle)) if end > middle else middle


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
    from_first_side = np.where(first > second, uneven, 0) + (excess - uneven) // 2
    for column, removed in (
        (0, from_first_side),
        (2, excess - from_first_side),
    ):
        front = rng.binomial(removed, 0.5)
        spans[:, column] += front
        spans[:, column + 1] -= removed - front
    return int(excess.sum())
