"""Errors in the number that is predicted for a text."""

import numpy as np
from jaxtyping import Float, Float64

from bert_jax.storage.files import JsonObject
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Predictions
from bert_jax.tasks.reporting.views import (
    Axis,
    Bars,
    Block,
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

MAX_POINTS = 1000
_NUM_BINS = 25
NUM_GROUPS = 5


def _range_of(errors: Float64[np.ndarray, " N"]) -> tuple[float, float]:
    """Return the least and the largest, or more where bins would have no width."""
    low, high = float(errors.min()), float(errors.max())
    least = _NUM_BINS * 4 * np.spacing(max(abs(low), abs(high)))
    return (
        (low, high) if high - low > least else (low - 0.5 - least, high + 0.5 + least)
    )


def analyse(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return the distribution of errors, errors by range, and worst examples.

    Raises:
        ValueError: a prediction is not a number.
    """
    gold = np.array([example.label for example in predictions.examples], np.float64)
    predicted = np.array([value["value"] for value in predictions.values], np.float64)
    error = predicted - gold
    counts, edges = np.histogram(error, bins=_NUM_BINS, range=_range_of(error))
    chosen = np.unique(np.linspace(0, len(gold) - 1, MAX_POINTS).round().astype(int))
    chosen = chosen[np.argsort(gold[chosen], kind="stable")]
    report: JsonObject = {
        "errors": _errors(error),
        "by_range": _by_range(gold, error),
        "histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
        "points": {
            "label": gold[chosen].tolist(),
            "prediction": predicted[chosen].tolist(),
        },
    }
    worst = WorstExamples()
    for i, size in enumerate(np.abs(error).tolist()):
        worst.add(size, i)

    def entry(i: int) -> JsonObject:
        values = {"label": gold[i], "prediction": predicted[i], "error": error[i]}
        return {name: float(value) for name, value in values.items()}

    listed = worst_texts(worst, predictions.examples, entry)["worst"]
    return report | {"worst": listed}


def _errors(error: Float[np.ndarray, " N"]) -> dict[str, float]:
    return {
        "mean_error": float(error.mean()),
        "mean_absolute_error": float(np.abs(error).mean()),
        "root_mean_squared_error": float(np.sqrt((error**2).mean())),
    }


def _by_range(
    gold: Float[np.ndarray, " N"], error: Float[np.ndarray, " N"]
) -> list[JsonObject]:
    """Return the errors in ranges of gold numbers with about equally many texts."""
    edges = np.unique(np.quantile(gold, np.linspace(0, 1, NUM_GROUPS + 1)))
    group = np.searchsorted(edges[1:-1], gold, side="right")
    return [
        {"low": float(own.min()), "high": float(own.max()), "count": own.size}
        | _errors(error[group == i])
        for i in range(max(len(edges) - 1, 1))
        if (own := gold[group == i]).size
    ]


def sections(report: JsonObject) -> list[Section]:
    """Return what to show of an analysis."""
    points, histogram = report["points"], report["histogram"]
    values = [*points["label"], *points["prediction"]]
    low, high = min(values), max(values)
    margin = (high - low or 1) * 0.03
    limits = (low - margin, high + margin)
    shown = len(points["label"])
    total = report["num_examples"]
    scatter = Chart(
        "Predicted against gold",
        Axis("gold number", low - margin, high + margin),
        curves=[Curve("predicted", points["label"], points["prediction"], dots=True)],
        diagonal="predicted = gold",
        limits=limits,
        note=f"{shown:,} of {total:,} texts, evenly from the file."
        if shown < total
        else "Each dot is a text.",
    )
    edges = histogram["edges"]
    bars = Bars("texts", edges, [float(count) for count in histogram["counts"]])
    residuals = Chart(
        "Errors",
        Axis("predicted − gold", edges[0], edges[-1]),
        bars=bars,
        note="The number of texts by error; right of 0, the model predicts too much.",
    )
    parts: list[Block] = [scatter, residuals, _table(report)]
    note = "The error is the predicted number minus the gold one."
    items = [_item(entry) for entry in report["worst"]]
    about = (
        "The texts with the largest errors. Some labels may be wrong, not the model."
    )
    return [
        Section("errors", "Errors", note, parts),
        Section("worst", "Worst examples", about, [Examples(items)]),
    ]


def _table(report: JsonObject) -> Table:
    columns = [Column("gold numbers"), Column("texts", "whole")]
    names = ("mean error", "mean absolute error", "root mean squared error")
    columns += [Column(name, "number") for name in names]
    keys = [name.replace(" ", "_") for name in names]
    rows: list[list[TableCell]] = [
        [
            f"{entry['low']:.4g} to {entry['high']:.4g}",
            entry["count"],
            *(entry[key] for key in keys),
        ]
        for entry in report["by_range"]
    ]
    rows.append(
        ["all", report["num_examples"], *(report["errors"][key] for key in keys)]
    )
    return Table("Errors by gold number", columns, rows, last_rows=1)


def _item(entry: JsonObject) -> Item:
    names = ("label", "prediction", "error")
    gold, predicted, error = (entry[name] for name in names)
    facts = [
        ("gold", f"{gold:.4g}"),
        ("predicted", f"{predicted:.4g}"),
        ("error", f"{error:+.4g}"),
    ]
    return Item(entry["where"], facts, passages(entry["texts"]))
