"""The expected calibration error, by hand and by its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.metrics.calibration import calibration


def test_by_hand():
    """Five bins of 0.2; of the fourth, one of two is right, of the last, one of three.

    ECE = 2/5 · |1/2 − 0.7| + 3/5 · |1/3 − 0.9| = 0.08 + 0.34.
    """
    probabilities = np.array([0.65, 0.75, 0.85, 0.9, 0.95])
    right = np.array([True, False, False, True, False])
    bins = calibration(probabilities, right, num_bins=5)
    assert bins.counts.tolist() == [0, 0, 0, 2, 3]
    np.testing.assert_allclose(bins.mean_probability[3:], [0.7, 0.9])
    np.testing.assert_allclose(bins.fraction_true[3:], [1 / 2, 1 / 3])
    assert np.isnan(bins.fraction_true[:3]).all()
    assert bins.expected_error == pytest.approx(0.42)
    assert bins.mean_difference == pytest.approx(0.82 - 0.4)


def test_a_bin_holds_its_upper_edge_and_the_first_one_also_zero():
    edges = np.array([0.0, 0.5, 0.5, 1.0])
    bins = calibration(edges, np.array([False, True, False, True]), num_bins=2)
    assert bins.counts.tolist() == [3, 1]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 20),
)
def test_by_the_definition(pairs, num_bins):
    probabilities, right = map(np.array, zip(*pairs, strict=True))
    bins = calibration(probabilities.astype(float), right.astype(bool), num_bins)
    expected = 0.0
    for low, high in zip(bins.edges[:-1], bins.edges[1:], strict=True):
        own = (probabilities > low) & (probabilities <= high)
        own |= (low == 0) & (probabilities == 0)
        if own.any():
            gap = abs(right[own].mean() - probabilities[own].mean())
            expected += own.sum() / len(pairs) * gap
    assert bins.expected_error == pytest.approx(expected, abs=1e-12)
    assert bins.counts.sum() == len(pairs)


@pytest.mark.parametrize("wrong", [np.nan, -0.1, 1.5])
def test_what_is_no_probability(wrong):
    with pytest.raises(ValueError, match=f"probability {wrong} must be from 0 to 1"):
        calibration(np.array([0.5, wrong]), np.array([True, True]))


def test_nothing_to_calibrate():
    with pytest.raises(ValueError, match="no probabilities"):
        calibration(np.array([]), np.array([], bool))
