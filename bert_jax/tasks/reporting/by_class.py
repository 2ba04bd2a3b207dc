"""Sections that several tasks have: scores of classes, and what is taken for what."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from bert_jax.metrics.match_counts import MatchCounts, added
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.reporting.views import Block, Column, Matrix, Section, Table

MAX_MATRIX = 40
"""The number of classes up to which the whole matrix is shown."""
MAX_CONFUSIONS = 20
"""The number of most frequent confusions that are listed."""
SCORES = {"precision": "precision", "recall": "recall", "f1": "F1"}
"""Names of scores, and how tables and charts call them."""


def class_scores(names: Sequence[str], counts: Sequence[MatchCounts]) -> JsonObject:
    """Return the scores of `classes`, and their `averages`.

    Micro: of all counts together. Macro: the mean over the classes that occur, in the
    data or among the predictions. Weighted: the mean over the gold examples' classes.
    """
    occurring = [count for count in counts if count.gold + count.predicted]
    support = [count.gold for count in occurring]
    table = {name: [getattr(c, name) for c in occurring] for name in SCORES}
    averages = {"micro": _scores(added(counts))}
    if occurring:
        averages["macro"] = {k: float(np.mean(v)) for k, v in table.items()}
    if sum(support):
        averages["weighted"] = {
            k: float(np.average(v, weights=support)) for k, v in table.items()
        }
    return {
        "classes": [
            {"label": name, **_scores(count)}
            | {"support": count.gold, "predicted": count.predicted}
            for name, count in zip(names, counts, strict=True)
        ],
        "averages": averages,
    }


def _scores(count: MatchCounts) -> dict[str, float]:
    return {name: getattr(count, name) for name in SCORES}


def class_table(
    report: JsonObject, title: str, first: str, averages: Sequence[str]
) -> Table:
    """Return the table of `class_scores`, with some of the averages at its end."""
    columns = [Column(first)]
    columns += [Column(name, "percent", has_bar=True) for name in SCORES.values()]
    counts = ("support", "predicted")
    columns += [Column(name, "whole") for name in counts]
    rows = [
        [entry["label"], *(entry[name] for name in (*SCORES, *counts))]
        for entry in report["classes"]
    ]
    totals = [sum(entry[name] for entry in report["classes"]) for name in counts]
    shown = [name for name in averages if name in report["averages"]]
    for name in shown:
        scores = report["averages"][name]
        rows.append([f"{name} average", *(scores[key] for key in SCORES), *totals])
    return Table(title, columns, rows, last_rows=len(shown))


def confusions(names: Sequence[str], counts: Int[np.ndarray, "C C"]) -> JsonObject:
    """Return the most frequent `confusions`, and the `confusion_matrix` if not large.

    Rows of `counts` are gold classes, and columns predicted ones.
    """
    rows, columns = np.nonzero(counts)
    rows, columns = rows[rows != columns], columns[rows != columns]
    order = np.argsort(-counts[rows, columns], kind="stable")[:MAX_CONFUSIONS]
    listed = [
        {
            "gold": names[i],
            "predicted": names[j],
            "count": int(counts[i, j]),
            "fraction_of_gold": float(counts[i, j] / counts[i].sum()),
        }
        for i, j in zip(rows[order].tolist(), columns[order].tolist(), strict=True)
    ]
    matrix = None
    if len(names) <= MAX_MATRIX:
        matrix = {"labels": list(names), "counts": counts.tolist()}
    return {"confusions": listed, "confusion_matrix": matrix}


def confusion_section(report: JsonObject, note: str = "") -> Section:
    """Return the section of `confusions`."""
    parts: list[Block] = []
    matrix, listed = report["confusion_matrix"], report["confusions"]
    if matrix:
        names = matrix["labels"]
        parts.append(Matrix("Confusion matrix", names, names, matrix["counts"]))
    if listed and (matrix is None or len(matrix["labels"]) > 2):
        columns = [Column("gold"), Column("predicted"), Column("count", "whole")]
        columns.append(Column("of the gold class", "percent", has_bar=True))
        keys = ("gold", "predicted", "count", "fraction_of_gold")
        rows = [[entry[key] for key in keys] for entry in listed]
        parts.append(Table("Most frequent confusions", columns, rows))
    about = "How often each class (row) is predicted as each class (column)."
    if matrix is None:
        about = f"Of more than {MAX_MATRIX} classes, no matrix is shown."
    return Section("confusions", "Confusions", f"{about} {note}".rstrip(), parts)
