"""Errors in pairs of texts: in their scores, or in finding the second for the first."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from bert_jax.storage.files import JsonObject
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Example, Predictions
from bert_jax.tasks.reporting import views
from bert_jax.tasks.reporting.analysis import Analysis
from bert_jax.tasks.reporting.worst import (
    WorstExamples,
    passages,
    shortened,
    worst_section,
)
from bert_jax.tasks.texts import number_report

_RANGES = ((1, 1), (2, 3), (4, 10), (11, 100), (101, None))
"""Of ranks, from and to."""


def analyse_scores(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return the scores by range of the labels, and the pairs that are least in order.

    Labels may have any scale, so that only orders are compared. The place of a pair is
    the fraction of the others that have a lower label, or score.
    """
    gold = np.array([example.label for example in predictions.examples], np.float64)
    scores = np.array([value["score"] for value in predictions.values], np.float64)
    by_name = {"label": gold, "score": scores}
    places = {f"{name}_place": _places(values) for name, values in by_name.items()}
    errors = places["score_place"] - places["label_place"]
    return {
        "by_range": number_report.by_range(gold, scores, _summary),
        "points": number_report.points(gold, "score", scores),
        "worst": number_report.largest(errors, predictions.examples, by_name | places),
    }


def _places(values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return each value's rank from 0 to 1; equal ones share the mean of theirs."""
    from scipy.stats import rankdata

    return (rankdata(values) - 1) / max(len(values) - 1, 1)


def _summary(scores: Float[np.ndarray, " _"]) -> JsonObject:
    low, middle, high = np.quantile(scores, (0.1, 0.5, 0.9)).tolist()
    quantiles = {"0.1": low, "0.5": middle, "0.9": high}
    return {"mean_score": float(scores.mean()), "score_quantiles": quantiles}


def score_sections(report: JsonObject) -> list[views.Section]:
    labels, scores = (report["points"][name] for name in ("label", "score"))
    low, high = number_report.with_margin(labels)
    scatter = views.Chart(
        "Score against label",
        {"name": "label", "low": low, "high": high, "percent": False},
        curves=[{"name": "score", "xs": labels, "values": scores, "dots": True}],
        note=number_report.dots_note(report, "pair"),
    )
    names = "mean score", "lowest tenth to", "median", "highest tenth from"
    columns = [views.Column("labels"), views.Column("pairs", "whole")]
    columns += [views.Column(name, "number") for name in names]
    rows = number_report.range_rows(
        report, lambda own: [own["mean_score"], *own["score_quantiles"].values()]
    )
    table = views.Table("Scores by label", columns, rows)
    note = "Labels and scores may have different scales; their order is compared."
    about = (
        "The pairs whose place in the order of the scores is farthest from that in the "
        "order of the labels: 0 % is the lowest, 100 % the highest. Some labels may be "
        "wrong, not the model."
    )
    items = [_scored_item(entry) for entry in report["worst"]]
    return [
        views.Section("order", "Scores and labels", note, [scatter, table]),
        views.Section("worst", "Worst examples", about, [views.Examples(items)]),
    ]


def _scored_item(entry: JsonObject) -> views.Item:
    facts = [
        ("label", f"{entry['label']:.4g}"),
        ("score", f"{entry['score']:.4g}"),
        ("place by label", f"{entry['label_place']:.0%}"),
        ("by score", f"{entry['score_place']:.0%}"),
    ]
    return views.Item(entry["where"], facts, passages(entry["texts"]))


def analyse_ranks(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return how often the right text has which rank, and what stands before it."""
    ranked = [value for value in predictions.values if "rank" in value]
    if any(math.isnan(value["right_score"]) for value in ranked):
        raise ValueError("A score is not a number: the training diverged.")
    worst = WorstExamples()
    for i, value in enumerate(ranked):
        if value["rank"] > 1:
            # Of equal ranks, the one that is farther behind.
            margin = value["first_score"] - value["right_score"]
            worst.add(value["rank"] + margin / (1 + margin), i)
    ranks = [value["rank"] for value in ranked]
    return {
        "ranks": [
            {"low": low, "high": high}
            | {"count": sum(low <= rank <= (high or rank) for rank in ranks)}
            for low, high in _RANGES
        ],
        "num_queries": len(ranked),
        **worst.listed(lambda i: _ranked_entry(ranked[i], predictions.examples)),
    }


def _ranked_entry(value: JsonObject, examples: Sequence[Example]) -> JsonObject:
    (right, _), (first, text) = value["right"], value["first"]
    return {
        "index": right,
        "where": examples[right].where,
        "rank": value["rank"],
        "score": value["right_score"],
        "first_score": value["first_score"],
        "first_where": examples[first].where,
        "texts": [shortened(one) for one in examples[right].texts[:2]],
        "first_text": shortened(examples[first].texts[text]),
    }


def rank_sections(report: JsonObject) -> list[views.Section]:
    total = report["num_queries"]
    columns = [views.Column("rank"), views.Column("first texts", "whole")]
    columns.append(views.Column("fraction", "percent", has_bar=True))
    rows = []
    for entry in report["ranks"]:
        low, high, count = (entry[name] for name in ("low", "high", "count"))
        ranks = f"{low} to {high}" if high else f"{low} or more"
        ranks = str(low) if low == high else ranks
        rows.append([ranks, count, count / max(total, 1)])
    table = views.Table("Rank of the right text", columns, rows)
    note = "Of a text with several partners, the rank is that of the best one."
    about = (
        "The first texts whose own text has the lowest rank, and what was ranked first "
        "in its place. That may belong to the text, too, though no pair says so."
    )
    of_queries = report | {"num_examples": total}
    return [
        views.Section("ranks", "Ranks", note, [table]),
        worst_section(of_queries, about, _ranked_item, "first texts"),
    ]


def _ranked_item(entry: JsonObject) -> views.Item:
    first, own = entry["texts"]
    facts = [
        ("rank", f"{entry['rank']:,}"),
        ("score", f"{entry['score']:.4g}"),
        ("of what is ranked first", f"{entry['first_score']:.4g}"),
    ]
    before = views.MarkedSpan(entry["first_text"], "wrong")
    shown = [
        views.Passage("first text", [views.MarkedSpan(first)]),
        views.Passage("its own text", [views.MarkedSpan(own, "gold")]),
        views.Passage(f"ranked first ({entry['first_where']})", [before]),
    ]
    return views.Item(entry["where"], facts, shown)


ANALYSES = {
    "scored_pairs": Analysis(analyse_scores, score_sections),
    "found_pairs": Analysis(analyse_ranks, rank_sections),
}
