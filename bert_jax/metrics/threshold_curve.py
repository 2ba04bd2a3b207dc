"""Scores of a decision by each threshold of its probability."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

DEFAULT_THRESHOLD = 0.5
GRID = np.linspace(0, 1, 101)
"""The thresholds at which a curve is given."""


@dataclasses.dataclass(frozen=True)
class ThresholdScores:
    """Fractions; the decision is made where its probability is at least `threshold`."""

    threshold: float
    precision: float | None
    """None if the decision is made nowhere."""
    recall: float
    f1: float
    accuracy: float


@dataclasses.dataclass(frozen=True)
class ThresholdCurve:
    """The scores at the thresholds of `GRID`, and at the one with the best F1."""

    grid: list[ThresholdScores]
    best: ThresholdScores


def threshold_curve(
    probabilities: Float[np.ndarray, " N"], is_right: Bool[np.ndarray, " N"]
) -> ThresholdCurve | None:
    """Return the scores by threshold; None if the decision is nowhere right.

    The best threshold is the one with the highest F1 over all thresholds, of equal ones
    the nearest to 0.5. Between two probabilities, it is 0.5 or a number with the fewest
    digits, so that it can be typed, and another batch size does not change its score.
    """
    from sklearn.metrics import precision_recall_curve

    if not is_right.any():
        return None
    precision, recall, thresholds = precision_recall_curve(is_right, probabilities)
    # The last point has no threshold. Where recall is 0, so is precision.
    precision, recall = precision[:-1], recall[:-1]
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-300)
    lower = np.concatenate([[0.0], thresholds[:-1]])
    is_best = f1 == f1.max()
    typed = map(_fewest_digits, lower[is_best].tolist(), thresholds[is_best].tolist())
    best = min(typed, key=lambda threshold: abs(threshold - 0.5))
    in_order, right = np.sort(probabilities), np.sort(probabilities[is_right])

    def at(threshold: float) -> ThresholdScores:
        made = in_order.size - int(np.searchsorted(in_order, threshold))
        hits = right.size - int(np.searchsorted(right, threshold))
        false = made - hits + right.size - hits
        return ThresholdScores(
            threshold=threshold,
            precision=hits / made if made else None,
            recall=hits / right.size,
            f1=2 * hits / (made + right.size),
            accuracy=1 - false / in_order.size,
        )

    return ThresholdCurve([at(float(threshold)) for threshold in GRID], at(best))


def _fewest_digits(low: float, high: float) -> float:
    """Return a short number above `low` and up to `high`: 0.5, or near the middle."""
    if low < DEFAULT_THRESHOLD <= high:
        return DEFAULT_THRESHOLD
    for digits in range(1, 17):
        number = round((low + high) / 2, digits)
        if low < number <= high:
            return float(number)
    return float(high)
