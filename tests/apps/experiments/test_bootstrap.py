"""Scores of items and seeds, and their intervals (Sellam et al. 2021)."""

import math

import numpy as np
import pytest

from bert_jax.apps.experiments.bootstrap import (
    Difference,
    paired_difference,
    seed_scores,
    widening,
)


def right(rates: np.ndarray, num_items: int, generator: np.random.Generator):
    """Whether each item is right, by seed: [S, N, 2], the second of them 1."""
    hits = generator.random((len(rates), num_items)) < rates[:, None]
    return np.stack([hits, np.ones_like(hits)], axis=2).astype(np.float64)


def test_scores_are_quotients_of_sums_and_their_exponentials():
    items = np.array([[[1.0, 2.0], [3.0, 6.0]], [[0.0, 0.0], [2.0, 1.0]]])
    assert seed_scores(items, "ratio").tolist() == [0.5, 2.0]
    assert seed_scores(items, "perplexity").tolist() == [math.exp(0.5), math.exp(2)]
    nothing = np.zeros((1, 3, 2))
    assert seed_scores(nothing, "ratio").tolist() == [0.0]


def test_equal_sides_differ_by_exactly_nothing():
    items = right(np.array([0.3, 0.6]), 50, np.random.default_rng(0))
    difference = paired_difference(items, items, "ratio")
    assert (difference.mean, difference.low, difference.high) == (0, 0, 0)
    assert not difference.excludes_zero


def test_items_that_agree_but_for_a_shift_have_an_interval_of_the_shift():
    """Paired: what the two sides fraction does not widen the interval."""
    generator = np.random.default_rng(0)
    base = generator.random((4, 200, 2)) * [1.0, 0.0] + [0.0, 1.0]
    better = base + [0.1, 0.0]
    difference = paired_difference(better, base, "ratio")
    assert difference.mean == pytest.approx(0.1)
    assert difference.low == pytest.approx(0.1) == difference.high
    assert difference.excludes_zero


@pytest.mark.parametrize(("num_items", "seed_spread"), [(100, 0.0), (2000, 0.1)])
def test_intervals_have_both_sources_of_chance(num_items, seed_spread):
    """Few items widen the interval, and so do seeds that differ."""
    generator = np.random.default_rng(1)
    base = right(np.full(8, 0.5), num_items, generator)
    rates = 0.5 + seed_spread * generator.standard_normal(8)
    difference = paired_difference(right(rates, num_items, generator), base, "ratio")
    expected = math.sqrt(seed_spread**2 / 8 + 2 * 0.25 / num_items / 8)
    width = (difference.high - difference.low) / (2 * 1.96 * widening(8))
    # Items are drawn once for all seeds: of independent ones it counts the same.
    assert width == pytest.approx(expected, rel=0.6)
    assert difference.low < difference.mean < difference.high


def covered(difference: Difference, truth: float) -> bool:
    return difference.low <= truth <= difference.high


def test_intervals_cover_the_true_difference_about_as_often_as_they_say():
    """Of 60 experiments 57 are expected, whether items or seeds are the chance."""
    by_items = by_seeds = 0
    for trial in range(60):
        generator = np.random.default_rng(trial)
        # Each item is right or wrong for all seeds, as hard and easy items are.
        easy = generator.random(300)
        sides = [
            np.stack([np.broadcast_to(easy < rate, (5, 300)), np.ones((5, 300))], 2)
            for rate in (0.6, 0.5)
        ]
        difference = paired_difference(*sides, "ratio", num_samples=200)
        by_items += covered(difference, 0.1)
        # All items of a seed are shifted alike: a better or worse run.
        shifts = 0.02 * generator.standard_normal((2, 5, 1))
        numerators = np.broadcast_to(0.5 + shifts, (2, 5, 40))
        of_seeds = np.stack([numerators, np.ones((2, 5, 40))], axis=3)
        difference = paired_difference(*of_seeds, "ratio", num_samples=200)
        by_seeds += covered(difference, 0.0)
    assert 50 <= by_items <= 60
    assert 52 <= by_seeds <= 60


def test_one_seed_has_a_difference_and_no_interval():
    generator = np.random.default_rng(0)
    sides = [right(np.array([rate]), 100, generator) for rate in (0.9, 0.1)]
    difference = paired_difference(*sides, "ratio")
    assert difference.mean > 0.5 and not difference.excludes_zero
    assert (difference.low, difference.high) == (-math.inf, math.inf)


def test_intervals_of_few_seeds_are_widened_as_those_of_few_normal_numbers():
    # t of 1 and 4 degrees of freedom, 12.706 and 2.776, to 1.960 of the normal.
    assert widening(2) == pytest.approx(12.706 / 1.960 * math.sqrt(2), rel=1e-3)
    assert widening(5) == pytest.approx(2.776 / 1.960 * math.sqrt(5 / 4), rel=1e-3)
    assert widening(1000) == pytest.approx(1, rel=1e-2)
