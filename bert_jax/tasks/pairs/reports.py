"""The error reports of pairs of texts."""

from bert_jax.tasks.pairs import rank_report, score_report
from bert_jax.tasks.predictions import Predictions
from bert_jax.tasks.reporting.analysis import Analysis

PAIR_ANALYSES = {
    "scored_pairs": Analysis(score_report.analyse, score_report.sections),
    "found_pairs": Analysis(rank_report.analyse, rank_report.sections),
}


def pair_report_kind(predictions: Predictions) -> str:
    """Return which of them it is: pairs have a label, or are to be found."""
    has_label = predictions.examples[0].label is not None
    return "scored_pairs" if has_label else "found_pairs"
