"""Precision, recall and F1 of a class or a type, from three counts."""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class MatchCounts:
    """The numbers of gold ones, of predicted ones, and of correct predictions.

    Precision, recall and F1 are fractions (conlleval prints per cent), and 0 if they
    are 0/0, as in conlleval.
    """

    gold: int
    predicted: int
    correct: int

    @property
    def precision(self) -> float:
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.correct / ((self.gold + self.predicted) or 1)


def added(counts: Iterable[MatchCounts]) -> MatchCounts:
    """Return the sums of counts, whose scores are micro-averages."""
    listed = list(counts)
    return MatchCounts(
        gold=sum(count.gold for count in listed),
        predicted=sum(count.predicted for count in listed),
        correct=sum(count.correct for count in listed),
    )
