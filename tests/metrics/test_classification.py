"""Scores of classification and regression: by hand, and as others compute them."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score

from bert_jax.metrics.classification import (
    classification_scores,
    multi_label_scores,
    regression_scores,
)

ONES_AND_ZEROS = np.array([1, 1, 1, 0, 0, 0, 0, 0])
"""Of these, the next finds two, misses one, and invents one."""
GUESSES = np.array([1, 1, 0, 1, 0, 0, 0, 0])


def test_two_classes_by_hand():
    scores = classification_scores(ONES_AND_ZEROS, GUESSES, num_classes=2)
    # Of class 1: 2 right of 3 and 3. Of class 0: 4 right of 5 and 5.
    assert scores == pytest.approx(
        {
            "accuracy": 6 / 8,
            "f1": 2 / 3,
            "macro_f1": (2 / 3 + 4 / 5) / 2,
            "mcc": (2 * 4 - 1 * 1) / math.sqrt(3 * 3 * 5 * 5),
        }
    )


def test_three_classes_by_hand():
    labels, guesses = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 1, 2, 2, 1])
    scores = classification_scores(labels, guesses, num_classes=3)
    assert "f1" not in scores
    assert scores["accuracy"] == pytest.approx(4 / 6)
    assert scores["macro_f1"] == pytest.approx((1 + 1 / 2 + 1 / 2) / 3)
    # Gorodkin: (right·n − Σ tₖpₖ) / √((n² − Σ pₖ²)(n² − Σ tₖ²)), every tₖ = pₖ = 2.
    assert scores["mcc"] == pytest.approx((4 * 6 - 12) / (36 - 12))


def test_macro_f1_leaves_out_classes_that_do_not_occur():
    labels = np.array([0, 1, 1])
    assert classification_scores(labels, labels, num_classes=9)["macro_f1"] == 1


@pytest.mark.parametrize(
    ("labels", "guesses", "accuracy", "f1"),
    [
        ([0, 1, 0, 1], [0, 0, 0, 0], 0.5, 0),
        ([0, 1, 0, 1], [1, 1, 1, 1], 0.5, 2 / 3),
        ([1, 1, 1], [1, 1, 1], 1, 1),
        ([0, 0, 0], [0, 0, 0], 1, 0),
        ([1], [0], 0, 0),
    ],
)
def test_one_class_alone_has_no_correlation(labels, guesses, accuracy, f1):
    scores = classification_scores(np.array(labels), np.array(guesses), 2)
    assert scores["accuracy"] == accuracy
    assert scores["f1"] == pytest.approx(f1)
    assert scores["mcc"] == 0


@pytest.mark.parametrize(
    ("labels", "guesses", "message"),
    [
        ([0, 2], [0, 1], "label 2 is not a class: there are num_classes=2, from 0"),
        ([0, -1], [0, 1], "label -1 is not a class"),
        ([0, 1], [0, 3], "prediction 3 is not a class"),
    ],
)
def test_classes_outside_the_range_are_refused(labels, guesses, message):
    with pytest.raises(ValueError, match=message):
        classification_scores(np.array(labels), np.array(guesses), 2)


def test_no_examples_are_refused():
    with pytest.raises(ValueError, match=r"labels of shape \(0,\) hold no example"):
        classification_scores(np.zeros(0, int), np.zeros(0, int), 2)
    with pytest.raises(ValueError, match="hold no example"):
        regression_scores(np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match=r"shape \(0, 3\)"):
        multi_label_scores(np.zeros((0, 3), bool), np.zeros((0, 3), bool))
    with pytest.raises(ValueError, match=r"shape \(3, 0\)"):
        multi_label_scores(np.zeros((3, 0), bool), np.zeros((3, 0), bool))


PAIRS_OF_CLASSES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30
)


@settings(deadline=None)  # scikit-learn is imported in it
@given(PAIRS_OF_CLASSES, st.randoms())
def test_scores_of_classes_are_in_range_and_know_no_order(pairs, random):
    labels, guesses = np.array(pairs).T
    scores = classification_scores(labels, guesses, 4)
    assert 0 <= scores["accuracy"] <= 1
    assert 0 <= scores["macro_f1"] <= 1
    assert -1 <= scores["mcc"] <= 1 + 1e-12
    random.shuffle(pairs)
    assert classification_scores(*np.array(pairs).T, 4) == pytest.approx(scores)
    perfect = classification_scores(labels, labels, 4)
    assert perfect["accuracy"] == perfect["macro_f1"] == 1
    assert perfect["mcc"] == pytest.approx(float(len(set(labels)) > 1))


def test_regression_by_hand():
    labels, guesses = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 9.0])
    scores = regression_scores(labels, guesses)
    # About the means Σ xy = 11.5, Σ x² = 5, Σ y² = 38.75; ranks differ by 0, 1, 1, 0.
    assert scores == pytest.approx(
        {
            "pearson": 11.5 / math.sqrt(5 * 38.75),
            "spearman": 1 - 6 * 2 / (4 * 15),
            "mean_squared_error": 27 / 4,
        }
    )


@pytest.mark.parametrize(
    "guesses", [[3.0] * 3, [0.0] * 3, [0.1, 0.1 + 1e-17, 0.1 + 1.4e-17]]
)
def test_constants_have_no_correlation(guesses):
    labels = np.array([1.0, 2.0, 6.0])
    for pair in ((labels, np.array(guesses)), (np.array(guesses), labels)):
        scores = regression_scores(*pair)
        assert scores["pearson"] == scores["spearman"] == 0
        assert scores["mean_squared_error"] > 0


def test_one_and_two_examples():
    one, two = np.array([2.0]), np.array([1.0, 2.0])
    assert regression_scores(one, one)["pearson"] == 0
    assert regression_scores(two, -two)["pearson"] == pytest.approx(-1)
    assert regression_scores(two, two * 3)["spearman"] == pytest.approx(1)


def test_a_spread_that_the_mean_dwarfs_still_counts():
    labels = np.array([1.0, 2.0, 4.0])
    assert regression_scores(labels, labels + 4e12)["pearson"] == pytest.approx(1)


def test_float32_is_scored_in_float64():
    labels = np.array([1, 2, 3], np.float32)
    guesses = np.array([1e20, 2e20, 4e20], np.float32)
    assert regression_scores(labels, guesses)["mean_squared_error"] == pytest.approx(
        21e40 / 3
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_refused(bad):
    good = np.array([1.0, 2.0])
    with pytest.raises(ValueError, match=f"prediction {bad} is not finite"):
        regression_scores(good, np.array([1.0, bad]))
    with pytest.raises(ValueError, match=f"label {bad} is not finite"):
        regression_scores(np.array([1.0, bad]), good)


# Few values, so that many are equal, and none so near another that it is noise.
VALUES = st.integers(-9, 9).map(lambda n: n / 4)


@given(st.lists(st.tuples(VALUES, VALUES), min_size=3, max_size=30))
def test_correlations_are_those_of_scipy(pairs):
    x, y = np.array(pairs).T
    scores = regression_scores(x, y)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert scores["pearson"] == scores["spearman"] == 0
    else:
        assert scores["pearson"] == pytest.approx(pearsonr(x, y).statistic, abs=1e-9)
        assert scores["spearman"] == pytest.approx(spearmanr(x, y).statistic, abs=1e-9)
    assert regression_scores(y, x) == pytest.approx(scores, abs=1e-9)
    assert regression_scores(x, x)["mean_squared_error"] == 0


def test_several_labels_by_hand():
    labels = np.array([[1, 0, 1], [1, 1, 0], [0, 0, 0], [0, 1, 0]], bool)
    guesses = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 0, 0]], bool)
    # Right, labelled and predicted of each class: 2 2 3, 1 2 1, 0 1 0.
    assert multi_label_scores(labels, guesses) == pytest.approx(
        {
            "micro_f1": 6 / 9,
            "macro_f1": (4 / 5 + 2 / 3 + 0) / 3,
            "exact_match": 2 / 4,
        }
    )


def test_no_labels_and_no_predictions():
    nothing = np.zeros((2, 3), bool)
    scores = multi_label_scores(nothing, nothing)
    assert scores == {"micro_f1": 0, "macro_f1": 0, "exact_match": 1}


def test_one_column_is_one_class():
    labels, guesses = np.array([[1], [1], [0]], bool), np.array([[1], [0], [0]], bool)
    scores = multi_label_scores(labels, guesses)
    assert scores["micro_f1"] == scores["macro_f1"] == pytest.approx(2 / 3)
    assert scores["exact_match"] == pytest.approx(2 / 3)


@given(st.integers(1, 8), st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_several_labels_are_scored_as_by_scikit_learn(rows, columns, seed):
    labels, guesses = np.random.default_rng(seed).random((2, rows, columns)) < 0.4
    scores = multi_label_scores(labels, guesses)
    for average in ("micro", "macro"):
        expected = f1_score(labels, guesses, average=average, zero_division=0.0)
        assert scores[f"{average}_f1"] == pytest.approx(expected)
    assert multi_label_scores(labels[::-1], guesses[::-1]) == pytest.approx(scores)


def test_importing_it_loads_neither_scikit_learn_nor_scipy():
    code = (
        "import sys, bert_jax.metrics.classification;"
        "print([m for m in ('sklearn', 'scipy', 'jax') if m in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"
