"""Errors in the scores of pairs of texts, by their order: labels may have any scale."""

import numpy as np
from jaxtyping import Float

from bert_jax.storage.files import JsonObject
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Predictions
from bert_jax.tasks.reporting.views import (
    Axis,
    Chart,
    Column,
    Curve,
    Examples,
    Item,
    Section,
    Table,
    TableCell,
)
from bert_jax.tasks.reporting.worst import WorstExamples
from bert_jax.tasks.texts.class_report import passages, worst_texts
from bert_jax.tasks.texts.number_report import MAX_POINTS, NUM_GROUPS


def analyse(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return the scores by range of the labels, and the pairs that are least in order.

    The place of a pair is the fraction of the others that have a lower label, or score.
    """
    gold = np.array([example.label for example in predictions.examples], np.float64)
    scores = np.array([value["score"] for value in predictions.values], np.float64)
    places = {"label": _places(gold), "score": _places(scores)}
    chosen = np.unique(np.linspace(0, len(gold) - 1, MAX_POINTS).round().astype(int))
    chosen = chosen[np.argsort(gold[chosen], kind="stable")]
    errors = places["score"] - places["label"]
    worst = WorstExamples()
    for i, size in enumerate(np.abs(errors).tolist()):
        worst.add(size, i)

    def entry(i: int) -> JsonObject:
        return {
            "label": float(gold[i]),
            "score": float(scores[i]),
            "label_place": float(places["label"][i]),
            "score_place": float(places["score"][i]),
        }

    return {
        "by_range": _by_range(gold, scores),
        "points": {"label": gold[chosen].tolist(), "score": scores[chosen].tolist()},
        "worst": worst_texts(worst, predictions.examples, entry)["worst"],
    }


def _places(values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return each value's rank from 0 to 1; equal ones share the mean of theirs."""
    from scipy.stats import rankdata

    places: Float[np.ndarray, " N"] = (rankdata(values) - 1) / max(len(values) - 1, 1)
    return places


def _by_range(
    gold: Float[np.ndarray, " N"], scores: Float[np.ndarray, " N"]
) -> list[JsonObject]:
    """Return the scores in ranges of labels with about equally many pairs."""
    edges = np.unique(np.quantile(gold, np.linspace(0, 1, NUM_GROUPS + 1)))
    group = np.searchsorted(edges[1:-1], gold, side="right")
    ranges = []
    for i in range(max(len(edges) - 1, 1)):
        labels, own = gold[group == i], scores[group == i]
        if own.size:
            low, middle, high = np.quantile(own, (0.1, 0.5, 0.9)).tolist()
            ranges.append(
                {
                    "low": float(labels.min()),
                    "high": float(labels.max()),
                    "count": own.size,
                    "mean_score": float(own.mean()),
                    "score_quantiles": {"0.1": low, "0.5": middle, "0.9": high},
                }
            )
    return ranges


def sections(report: JsonObject) -> list[Section]:
    """Return what to show of an analysis."""
    points, total = report["points"], report["num_examples"]
    low, high = min(points["label"]), max(points["label"])
    margin = (high - low or 1) * 0.03
    shown = len(points["label"])
    dots = Curve("score", points["label"], points["score"], dots=True)
    scatter = Chart(
        "Score against label",
        Axis("label", low - margin, high + margin),
        curves=[dots],
        note=f"{shown:,} of {total:,} pairs, evenly from the file."
        if shown < total
        else "Each dot is a pair.",
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
    rows: list[list[TableCell]] = [
        [
            f"{entry['low']:.4g} to {entry['high']:.4g}",
            entry["count"],
            entry["mean_score"],
            *entry["score_quantiles"].values(),
        ]
        for entry in report["by_range"]
    ]
    return Table("Scores by label", columns, rows)


def _item(entry: JsonObject) -> Item:
    facts = [
        ("label", f"{entry['label']:.4g}"),
        ("score", f"{entry['score']:.4g}"),
        ("place by label", f"{entry['label_place']:.0%}"),
        ("by score", f"{entry['score_place']:.0%}"),
    ]
    return Item(entry["where"], facts, passages(entry["texts"]))
