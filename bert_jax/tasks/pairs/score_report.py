"""Errors in the scores of pairs of texts, by their order: labels may have any scale."""

import numpy as np
from jaxtyping import Float

from bert_jax.storage.files import JsonObject
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Predictions
from bert_jax.tasks.reporting.analysis import Analysis
from bert_jax.tasks.reporting.views import (
    Axis,
    Chart,
    Column,
    Curve,
    Examples,
    Item,
    Section,
    Table,
)
from bert_jax.tasks.texts.class_report import passages
from bert_jax.tasks.texts.number_report import (
    by_range,
    dots_note,
    largest,
    points,
    range_rows,
    with_margin,
)


def analyse(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return the scores by range of the labels, and the pairs that are least in order.

    The place of a pair is the fraction of the others that have a lower label, or score.
    """
    gold = np.array([example.label for example in predictions.examples], np.float64)
    scores = np.array([value["score"] for value in predictions.values], np.float64)
    by_name = {"label": gold, "score": scores}
    places = {f"{name}_place": _places(values) for name, values in by_name.items()}
    errors = places["score_place"] - places["label_place"]
    return {
        "by_range": by_range(gold, scores, _summary),
        "points": points(gold, "score", scores),
        "worst": largest(errors, predictions.examples, by_name | places),
    }


def _places(values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return each value's rank from 0 to 1; equal ones share the mean of theirs."""
    from scipy.stats import rankdata

    return (rankdata(values) - 1) / max(len(values) - 1, 1)


def _summary(scores: Float[np.ndarray, " _"]) -> JsonObject:
    low, middle, high = np.quantile(scores, (0.1, 0.5, 0.9)).tolist()
    quantiles = {"0.1": low, "0.5": middle, "0.9": high}
    return {"mean_score": float(scores.mean()), "score_quantiles": quantiles}


def sections(report: JsonObject) -> list[Section]:
    labels, scores = (report["points"][name] for name in ("label", "score"))
    low, high = with_margin(labels)
    scatter = Chart(
        "Score against label",
        Axis("label", low, high),
        curves=[Curve("score", labels, scores, dots=True)],
        note=dots_note(report, "pair"),
    )
    note = "Labels and scores may have different scales; their order is compared."
    about = (
        "The pairs whose place in the order of the scores is farthest from that in the "
        "order of the labels: 0 % is the lowest, 100 % the highest. Some labels may be "
        "wrong, not the model."
    )
    items = [_item(entry) for entry in report["worst"]]
    return [
        Section("order", "Scores and labels", note, [scatter, _table(report)]),
        Section("worst", "Worst examples", about, [Examples(items)]),
    ]


def _table(report: JsonObject) -> Table:
    names = "mean score", "lowest tenth to", "median", "highest tenth from"
    columns = [Column("labels"), Column("pairs", "whole")]
    columns += [Column(name, "number") for name in names]
    rows = range_rows(
        report, lambda own: [own["mean_score"], *own["score_quantiles"].values()]
    )
    return Table("Scores by label", columns, rows)


def _item(entry: JsonObject) -> Item:
    facts = [
        ("label", f"{entry['label']:.4g}"),
        ("score", f"{entry['score']:.4g}"),
        ("place by label", f"{entry['label_place']:.0%}"),
        ("by score", f"{entry['score_place']:.0%}"),
    ]
    return Item(entry["where"], facts, passages(entry["texts"]))


ANALYSES = {"scored_pairs": Analysis(analyse, sections)}
