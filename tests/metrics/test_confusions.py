"""Counts of classes, against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from bert_jax.metrics.confusions import (
    confusion_counts,
    counts_of_classes,
    counts_of_labels,
)
from bert_jax.metrics.match_counts import MatchCounts, added


def scores(counts):
    return np.transpose([(c.precision, c.recall, c.f1, c.gold) for c in counts])


def test_one_class_each():
    """Class 4 neither occurs nor is predicted; its scores are 0."""
    generator = np.random.default_rng(0)
    gold, predicted = generator.integers(0, 4, (2, 60))
    counts = confusion_counts(gold, predicted, 5)
    np.testing.assert_array_equal(
        counts, confusion_matrix(gold, predicted, labels=range(5))
    )
    expected = precision_recall_fscore_support(
        gold, predicted, labels=range(5), zero_division=0.0
    )
    np.testing.assert_allclose(scores(counts_of_classes(counts)), np.stack(expected))


def test_any_number_of_classes_each():
    generator = np.random.default_rng(1)
    gold, predicted = generator.integers(0, 2, (2, 40, 3)).astype(bool)
    counts = counts_of_labels(gold, predicted)
    expected = precision_recall_fscore_support(gold, predicted, zero_division=0.0)
    np.testing.assert_allclose(scores(counts), np.stack(expected))
    micro = added(counts)
    *expected, _ = precision_recall_fscore_support(gold, predicted, average="micro")
    assert (micro.precision, micro.recall, micro.f1) == pytest.approx(tuple(expected))


def test_the_sum_of_nothing():
    assert added([]) == MatchCounts(0, 0, 0) and added([]).f1 == 0
