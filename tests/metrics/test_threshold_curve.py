"""Scores by threshold, against scikit-learn and against all decisions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    precision_score,
    recall_score,
)

from bert_jax.metrics.threshold_curve import threshold_curve

PAIRS = st.lists(
    st.tuples(st.floats(0, 1, width=32), st.booleans()), min_size=1, max_size=30
).filter(lambda pairs: any(right for _, right in pairs))


def arrays(pairs):
    probabilities, right = zip(*pairs, strict=True)
    return np.array(probabilities, np.float64), np.array(right, bool)


@settings(max_examples=15)
@given(PAIRS)
def test_against_scikit_learn(pairs):
    probabilities, right = arrays(pairs)
    curve = threshold_curve(probabilities, right)
    assert curve is not None and len(curve.grid) == 101
    for scores in [*curve.grid[::10], curve.best]:
        made = probabilities >= scores.threshold
        assert scores.recall == pytest.approx(recall_score(right, made))
        assert scores.f1 == pytest.approx(f1_score(right, made, zero_division=0.0))
        assert scores.accuracy == pytest.approx(accuracy_score(right, made))
        if made.any():
            assert scores.precision == pytest.approx(precision_score(right, made))
        else:
            assert scores.precision is None


@given(PAIRS)
def test_no_threshold_has_a_higher_f1_than_the_best(pairs):
    probabilities, right = arrays(pairs)
    curve = threshold_curve(probabilities, right)
    scores = [
        f1_score(right, probabilities >= threshold, zero_division=0.0)
        for threshold in probabilities
    ]
    assert curve is not None
    assert curve.best.f1 == pytest.approx(max(scores))


def test_the_best_threshold_is_short_and_between_two_probabilities():
    """Above 0.3 and up to 0.7, both right ones are chosen, and none else."""
    probabilities = np.array([0.1234567, 0.3, 0.7000001, 0.9])
    curve = threshold_curve(probabilities, np.array([False, False, True, True]))
    assert curve is not None
    assert (curve.best.threshold, curve.best.f1) == (0.5, 1.0)
    curve = threshold_curve(np.array([0.61, 0.62]), np.array([False, True]))
    assert curve is not None and curve.best.threshold == 0.615


def test_of_equally_good_thresholds_the_nearest_to_a_half():
    """F1 is 2/3 for the first alone, and for all four."""
    right = np.array([True, False, False, True])
    curve = threshold_curve(np.array([0.9, 0.55, 0.2, 0.15]), right)
    assert curve is not None and curve.best.f1 == pytest.approx(2 / 3)
    assert curve.best.threshold == 0.7
    curve = threshold_curve(np.array([0.9, 0.3, 0.2, 0.15]), right)
    assert curve is not None and curve.best.threshold == 0.5, "the default"


def test_nothing_is_right():
    assert threshold_curve(np.array([0.2]), np.array([False])) is None
