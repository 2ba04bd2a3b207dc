"""Errors in the number that is predicted for a text."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from bert_jax.storage.files import JsonObject
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Example, Predictions
from bert_jax.tasks.reporting import views
from bert_jax.tasks.reporting.analysis import Analysis
from bert_jax.tasks.reporting.worst import WorstExamples, passages

MAX_POINTS = 1000
_NUM_BINS, _NUM_GROUPS = 25, 5


def analyse(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return the distribution of errors, errors by range, and worst examples."""
    gold = np.array([example.label for example in predictions.examples], np.float64)
    predicted = np.array([value["value"] for value in predictions.values], np.float64)
    error = predicted - gold
    low, high = float(error.min()), float(error.max())
    least = _NUM_BINS * 4 * np.spacing(max(abs(low), abs(high)))
    if high - low <= least:  # bins would have no width
        low, high = low - 0.5 - least, high + 0.5 + least
    counts, edges = np.histogram(error, bins=_NUM_BINS, range=(low, high))
    columns = {"label": gold, "prediction": predicted, "error": error}
    return {
        "errors": _errors(error),
        "by_range": by_range(gold, error, _errors),
        "histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
        "points": points(gold, "prediction", predicted),
        "worst": largest(error, predictions.examples, columns),
    }


def points(
    gold: Float[np.ndarray, " N"], name: str, values: Float[np.ndarray, " N"]
) -> JsonObject:
    """Return up to `MAX_POINTS` labels and values, evenly from the file, in order."""
    chosen = np.unique(np.linspace(0, len(gold) - 1, MAX_POINTS).round().astype(int))
    chosen = chosen[np.argsort(gold[chosen], kind="stable")]
    return {"label": gold[chosen].tolist(), name: values[chosen].tolist()}


def largest(
    errors: Float[np.ndarray, " N"],
    examples: Sequence[Example],
    columns: Mapping[str, Float[np.ndarray, " N"]],
) -> list[JsonObject]:
    """Return the examples with the largest errors, with their values of the columns."""
    worst = WorstExamples()
    for i, size in enumerate(np.abs(errors).tolist()):
        worst.add(size, i)
    values = {name: column.tolist() for name, column in columns.items()}
    return worst.listed_texts(examples, values)["worst"]


def _errors(error: Float[np.ndarray, " N"]) -> dict[str, float]:
    return {
        "mean_error": float(error.mean()),
        "mean_absolute_error": float(np.abs(error).mean()),
        "root_mean_squared_error": float(np.sqrt((error**2).mean())),
    }


def by_range(
    gold: Float[np.ndarray, " N"],
    values: Float[np.ndarray, " N"],
    summary: Callable[[Float[np.ndarray, " _"]], JsonObject],
) -> list[JsonObject]:
    """Return a summary of the values by labels, in ranges of about equal counts."""
    edges = np.unique(np.quantile(gold, np.linspace(0, 1, _NUM_GROUPS + 1)))
    group = np.searchsorted(edges[1:-1], gold, side="right")
    return [
        {"low": float(own.min()), "high": float(own.max()), "count": own.size}
        | summary(values[group == i])
        for i in range(max(len(edges) - 1, 1))
        if (own := gold[group == i]).size
    ]


def sections(report: JsonObject) -> list[views.Section]:
    gold, predicted = (report["points"][name] for name in ("label", "prediction"))
    histogram, (low, high) = report["histogram"], with_margin([*gold, *predicted])
    scatter = views.Chart(
        "Predicted against gold",
        {"name": "gold number", "low": low, "high": high, "percent": False},
        curves=[{"name": "predicted", "xs": gold, "values": predicted, "dots": True}],
        diagonal="predicted = gold",
        limits=(low, high),
        note=dots_note(report, "text"),
    )
    edges, counts = histogram["edges"], [*map(float, histogram["counts"])]
    ends = {"low": edges[0], "high": edges[-1]}
    residuals = views.Chart(
        "Errors",
        {"name": "predicted − gold", **ends, "percent": False},
        bars={"name": "texts", "edges": edges, "heights": counts},
        note="The number of texts by error; right of 0, the model predicts too much.",
    )
    names = ("mean error", "mean absolute error", "root mean squared error")
    columns = [views.Column("gold numbers"), views.Column("texts", "whole")]
    columns += [views.Column(name, "number") for name in names]
    keys = [name.replace(" ", "_") for name in names]
    total, errors = report["num_examples"], report["errors"]
    rows = range_rows(report, lambda entry: [entry[key] for key in keys])
    rows.append(["all", total, *(errors[key] for key in keys)])
    table = views.Table("Errors by gold number", columns, rows, last_rows=1)
    note = "The error is the predicted number minus the gold one."
    about = (
        "The texts with the largest errors. Some labels may be wrong, not the model."
    )
    items = [_item(entry) for entry in report["worst"]]
    return [
        views.Section("errors", "Errors", note, [scatter, residuals, table]),
        views.Section("worst", "Worst examples", about, [views.Examples(items)]),
    ]


def with_margin(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of values, a little wider on both sides."""
    low, high = min(values), max(values)
    margin = (high - low or 1) * 0.03
    return low - margin, high + margin


def dots_note(report: JsonObject, noun: str) -> str:
    """Return how many of the examples are the dots of a chart."""
    shown, total = len(report["points"]["label"]), report["num_examples"]
    some = f"{shown:,} of {total:,} {noun}s, evenly from the file."
    return some if shown < total else f"Each dot is a {noun}."


def range_rows(
    report: JsonObject, values: Callable[[JsonObject], list[views.TableCell]]
) -> list[list[views.TableCell]]:
    """Return a row for each range of labels: its ends, its count, and values of it."""
    ranges = report["by_range"]
    ends = iter(_told_apart(*(own[end] for own in ranges for end in ("low", "high"))))
    return [
        [f"{next(ends)} to {next(ends)}", own["count"], *values(own)] for own in ranges
    ]


def _told_apart(*numbers: float) -> list[str]:
    """Return numbers in four digits, or in as many as it takes to tell them apart."""
    for digits in (4, *range(10, 18)):
        texts = [f"{number:.{digits}g}" for number in numbers]
        if len(set(texts)) == len(set(numbers)):
            break
    return texts


def _item(entry: JsonObject) -> views.Item:
    gold, predicted = _told_apart(entry["label"], entry["prediction"])
    error = f"{entry['error']:+.4g}"
    facts = [("gold", gold), ("predicted", predicted), ("error", error)]
    return views.Item(entry["where"], facts, passages(entry["texts"]))


ANALYSES = {"regression": Analysis(analyse, sections)}
