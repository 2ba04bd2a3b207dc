"""Scores beside those of a rule that needs no model."""

import math

import pytest

from bert_jax.tasks.baselines import no_better


@pytest.mark.parametrize(
    ("scores", "line"),
    [
        (
            {"accuracy": 0.1, "baseline: accuracy of the commonest label": 0.9},
            "accuracy 0.1000 is no better than the commonest label: 0.9000",
        ),
        (
            {"accuracy": 0.5, "baseline: accuracy of the commonest label": 0.5},
            "accuracy 0.5000 is no better than the commonest label: 0.5000",
        ),
        ({"accuracy": 0.6, "baseline: accuracy of the commonest label": 0.5}, ""),
        (
            {"pearson": 0.5, "mean_squared_error": 9.0}
            | {"baseline: mean_squared_error of the mean": 4.0},
            "mean_squared_error 9 is no better than the mean: 4",
        ),
        (
            {
                "mean_squared_error": 3.0,
                "baseline: mean_squared_error of the mean": 4.0,
            },
            "",
        ),
        (
            {"mine": 0.9, "f1": 0.2, "accuracy": 0.9}
            | {"baseline: training-dictionary lookup": 0.3},
            "f1 0.2000 is no better than training-dictionary lookup: 0.3000",
        ),
        (
            {"accuracy": 0.9, "baseline: chance": 0.5}
            | {"test_accuracy": math.nan, "test_baseline: chance": 0.5},
            "test_accuracy nan is no better than chance: 0.5000",
        ),
        (
            {"mlm_loss": 5.6, "nsp_loss": 0.1, "unigram_loss": 5.5},
            "mlm_loss 5.6000 is no better than token frequency: 5.5000",
        ),
        (
            {
                "spearman": -0.1,
                "pearson": 0.1,
                "baseline: correlation of a constant": 0,
            },
            "spearman -0.1000 is no better than a constant: 0.0000",
        ),
        ({"clm_loss": 5.4, "unigram_loss": 5.5, "unigram_accuracy": 0.1}, ""),
    ],
)
def test_what_does_not_beat_its_baseline_is_said(scores, line):
    assert list(no_better(scores)) == ([line] if line else [])
