"""Errors in finding the text that belongs to another: what stands before it."""

import math
from collections.abc import Sequence

from bert_jax.storage.files import JsonObject
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Example, Predictions
from bert_jax.tasks.reporting.analysis import Analysis
from bert_jax.tasks.reporting.views import (
    Column,
    Item,
    MarkedSpan,
    MarkKind,
    Passage,
    Section,
    Table,
)
from bert_jax.tasks.reporting.worst import WorstExamples, shortened
from bert_jax.tasks.texts.class_report import worst_section

_RANGES = ((1, 1), (2, 3), (4, 10), (11, 100), (101, None))
"""Of ranks, from and to."""


def analyse(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return how often the right text has which rank, and what stands before it.

    Args:
        predictions: with the fields of `FinetuningTask.rankings_among`.
    """
    ranked = [value for value in predictions.values if "rank" in value]
    if any(math.isnan(value["right_score"]) for value in ranked):
        raise ValueError("A score is not a number: the training diverged.")
    examples, worst = predictions.examples, WorstExamples()
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
        **worst.listed(lambda i: _entry(ranked[i], examples)),
    }


def _entry(value: JsonObject, examples: Sequence[Example]) -> JsonObject:
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


def sections(report: JsonObject) -> list[Section]:
    total = report["num_queries"]
    columns = [Column("rank"), Column("first texts", "whole")]
    columns.append(Column("fraction", "percent", has_bar=True))
    rows = [
        [_range(entry), entry["count"], entry["count"] / max(total, 1)]
        for entry in report["ranks"]
    ]
    about = (
        "The first texts whose own text has the lowest rank, and what was ranked first "
        "in its place. That may belong to the text, too, though no pair says so."
    )
    of_queries = report | {"num_examples": total}
    return [
        Section(
            "ranks",
            "Ranks",
            "Of a text with several partners, the rank is that of the best one.",
            [Table("Rank of the right text", columns, rows)],
        ),
        worst_section(of_queries, about, _item, "first texts"),
    ]


def _range(entry: JsonObject) -> str:
    low, high = entry["low"], entry["high"]
    if high is None:
        return f"{low} or more"
    return str(low) if low == high else f"{low} to {high}"


def _item(entry: JsonObject) -> Item:
    first, own = entry["texts"]
    facts = [
        ("rank", f"{entry['rank']:,}"),
        ("score", f"{entry['score']:.4g}"),
        ("of what is ranked first", f"{entry['first_score']:.4g}"),
    ]
    passages = [
        _passage("first text", first),
        _passage("its own text", own, "gold"),
        _passage(
            f"ranked first ({entry['first_where']})", entry["first_text"], "wrong"
        ),
    ]
    return Item(entry["where"], facts, passages)


def _passage(name: str, text: str, mark: MarkKind = "") -> Passage:
    return Passage(name, [MarkedSpan(text, mark)])


ANALYSES = {"found_pairs": Analysis(analyse, sections)}
