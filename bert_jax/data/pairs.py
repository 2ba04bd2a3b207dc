"""Make pairs of segments from sentences.

The second segment follows the first or is random (Devlin et al. 2018, A.2), or the two
may be swapped (Lan et al. 2019, §3.1), or there is no second segment.

The tokens of all documents are concatenated in one array. A sentence is a span of it,
and a segment is one or more consecutive sentences, so pairs are made from lengths
alone. No token is copied before a row is written.
"""

import bisect
import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Int64

LABEL_MEANINGS = {
    "nsp": {0: "follows", 1: "random", -1: "none"},
    "sop": {0: "in order", 1: "swapped", -1: "none"},
    "none": {-1: "none"},
}
"""What the label of a pair says of its second segment, by the objective."""
PairSpan = tuple[int, int, int, int, int]
"""Start and end of the first segment, start and end of the second, and the label."""


@dataclasses.dataclass(frozen=True)
class PairSpans:
    """The spans of both segments of each pair in the token array, and its label."""

    first_start: Int64[np.ndarray, " N"]
    first_end: Int64[np.ndarray, " N"]
    second_start: Int64[np.ndarray, " N"]
    second_end: Int64[np.ndarray, " N"]
    label: Int64[np.ndarray, " N"]
    """0: the second segment follows the first. 1: it is from another document (nsp),
    or the two are swapped (sop). -1: there is no second segment; its span is empty."""
    dropped: dict[str, int]
    """What was left out, and how much of it."""

    @property
    def longest(self) -> int:
        """The tokens of the longest pair, [CLS] and two [SEP] included."""
        first = self.first_end - self.first_start
        return 3 + int((first + self.second_end - self.second_start).max(initial=0))

    def num_covered(self, num_tokens: int) -> int:
        """Return how many of the token array's tokens are in a segment."""
        change = np.zeros(num_tokens + 1, np.int64)
        np.add.at(change, [self.first_start, self.second_start], 1)
        np.add.at(change, [self.first_end, self.second_end], -1)
        return int(np.count_nonzero(change.cumsum()))


def make_pairs(
    documents: Sequence[Sequence[int]],
    sequence_length: int,
    short_probability: float,
    rng: np.random.Generator,
    pair_objective: Literal["nsp", "sop", "none"] = "nsp",
) -> PairSpans:
    """Return pairs of at most `sequence_length` tokens, including special tokens.

    Consecutive sentences are taken until they reach a target length: the length of the
    row or, with `short_probability`, a random shorter one. Sentence s of document d is
    the span from `documents[d][s]` to `documents[d][s + 1]`; it is not empty.
    """
    # [CLS], and a [SEP] after each segment.
    limit = sequence_length - (2 if pair_objective == "none" else 3)
    dropped: collections.Counter[str] = collections.Counter()

    def draw_target() -> int:
        short = rng.random() < short_probability
        return int(rng.integers(2, limit, endpoint=True)) if short else limit

    pairs: list[PairSpan] = []
    for index, bounds in enumerate(documents):
        if pair_objective == "nsp":
            pairs += _next_sentences(documents, index, draw_target, rng, dropped)
        elif pair_objective == "sop":
            pairs += _ordered_sentences(bounds, draw_target, rng, dropped)
        else:
            pairs += _single_segments(bounds, limit, draw_target)
    spans = np.array(pairs, np.int64).reshape(-1, 5)
    if truncated := _truncate(spans, limit, rng):
        dropped["tokens truncated from pairs"] = truncated
    a, b, c, d, label = spans.T.copy()
    return PairSpans(a, b, c, d, label, dict(dropped))


def _next_sentences(
    documents: Sequence[Sequence[int]],
    index: int,
    draw_target: Callable[[], int],
    rng: np.random.Generator,
    dropped: collections.Counter[str],
) -> Iterator[PairSpan]:
    """Yield the pairs whose first segment is in document `index`, before truncation.

    Sentences that reach the target are split at random into two segments. Half of the
    time the second segment is replaced by sentences of another document, and the next
    pair starts with the replaced sentences. If a single sentence reaches the target,
    its second segment is always random.
    """
    bounds, begin = documents[index], 0
    while begin < len(bounds) - 1:
        target = draw_target()
        end = _reach(bounds, begin, target)
        middle = _split_point(begin, end, rng)
        first = bounds[begin], bounds[middle]
        if len(documents) > 1 and (middle == end or rng.random() < 0.5):
            drawn = int(rng.random() * (len(documents) - 1))
            other = documents[drawn + (drawn >= index)]
            start = int(rng.random() * (len(other) - 1))
            stop = _reach(other, start, target - (first[1] - first[0]))
            yield *first, other[start], other[stop], 1
            begin = middle  # put the unused sentences back
            continue
        if middle < end:
            yield *first, bounds[middle], bounds[end], 0
        else:
            dropped["sentences without another document"] += 1
        begin = end


def _ordered_sentences(
    bounds: Sequence[int],
    draw_target: Callable[[], int],
    rng: np.random.Generator,
    dropped: collections.Counter[str],
) -> Iterator[PairSpan]:
    """Yield a document's pairs of consecutive segments, half of them swapped.

    If a single sentence reaches the target, it is paired with the next sentence.
    """
    begin, last = 0, len(bounds) - 1
    while begin < last:
        end = max(_reach(bounds, begin, draw_target()), begin + 2)
        if end > last:
            dropped["sentences without a neighbour"] += 1
            return
        middle = _split_point(begin, end, rng)
        first = bounds[begin], bounds[middle]
        second = bounds[middle], bounds[end]
        swapped = rng.random() < 0.5
        yield (*second, *first, 1) if swapped else (*first, *second, 0)
        begin = end


def _single_segments(
    bounds: Sequence[int], limit: int, draw_target: Callable[[], int]
) -> Iterator[PairSpan]:
    """Yield segments of as many sentences as fit into the target.

    No token is dropped: a sentence longer than a row continues in the next segment.
    """
    begin, start = 0, bounds[0]  # the next sentence, and the next token
    while begin < len(bounds) - 1:
        end = bisect.bisect_right(bounds, start + draw_target(), begin + 1) - 1
        if end > begin:
            stop, begin = bounds[end], end
        else:  # no sentence fits the target, but a row may hold one
            stop = min(bounds[begin + 1], start + limit)
            begin += stop == bounds[begin + 1]
        yield start, stop, stop, stop, -1
        start = stop


def _split_point(begin: int, end: int, rng: np.random.Generator) -> int:
    """Draw from (begin, end) uniformly; return `end` if the interval is empty."""
    middle = begin + 1
    return middle + int(rng.random() * (end - middle)) if end > middle else middle


def _reach(bounds: Sequence[int], begin: int, length: int) -> int:
    """Return the end of the fewest sentences from `begin` on with `length` tokens.

    Return the end of the document if it has fewer; include at least one sentence.
    """
    end = bisect.bisect_left(bounds, bounds[begin] + length, begin + 1)
    return min(end, len(bounds) - 1)


def _truncate(
    spans: Int64[np.ndarray, "N 5"], limit: int, rng: np.random.Generator
) -> int:
    """Truncate pairs to `limit` tokens in place; return the number of removed tokens.

    Equivalent to removing one token at a time from the longer segment (the second if
    they are equal), at its front or its back with equal probability.
    """
    first = spans[:, 1] - spans[:, 0]
    second = spans[:, 3] - spans[:, 2]
    excess = np.maximum(first + second - limit, 0)
    # First shorten the longer segment to the other's length, then both alternately.
    uneven = np.minimum(np.abs(first - second), excess)
    removed_first = np.where(first > second, uneven, 0) + (excess - uneven) // 2
    for column, removed in ((0, removed_first), (2, excess - removed_first)):
        front = rng.binomial(removed, 0.5)  # tokens removed at the front
        spans[:, column] += front
        spans[:, column + 1] -= removed - front
    return int(excess.sum())
