"""Pairs of texts, with hard negatives or a score, from the rows of a table."""

import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from bert_jax.config import ExamplesConfig
from bert_jax.metrics.classification import regression_scores
from bert_jax.storage.files import JsonObject
from bert_jax.tables.damage import parse_rows
from bert_jax.tables.read import table_rows
from bert_jax.tables.rows import TableRow, column_names, text_of
from bert_jax.tasks.predictions import Predictions
from bert_jax.tasks.texts.examples import DEFAULT_COLUMNS, parse_number, write_table

PAIR_COLUMNS = (
    ("anchor", "positive"),
    ("query", "document"),
    ("query", "passage"),
    ("query", "positive"),
    ("question", "context"),
    ("question", "answer"),
    *(columns for columns in DEFAULT_COLUMNS if len(columns) == 2),
)
"""The columns to look for, in this order, if text_columns is not given."""
_NEGATIVE = re.compile("negative(_[0-9]+)?")


@dataclasses.dataclass(frozen=True)
class PairExample:
    """A text, the one that belongs to it, and texts that do not."""

    texts: tuple[str, ...]
    label: float | None = None
    """How similar or relevant the second text is; None if it is not known."""
    where: str = dataclasses.field(default="", repr=False)
    """File and line, for messages; not in the fingerprint, since files are moved."""


def read_pairs(name: str, data: ExamplesConfig) -> list[PairExample]:
    """Return the pairs of a table.

    Raise FileNotFoundError if there is no such file, and ValueError if a column is
    missing, a text is empty, a label is no number, or some rows have a label or hard
    negatives and others do not.
    """
    if data.path:
        raise ValueError(
            f"data.path={data.path} is not read for sentence pairs; name files, as by "
            "`finetune --data.train` or `evaluate --input`."
        )
    examples = parse_rows(
        name,
        table_rows(name, data.delimiter),
        lambda row: _labelled(row, data),
        data.skip_damaged,
        has_label=lambda one: one.label is not None,
    )
    first = examples[0]
    for example in examples:
        if len(example.texts) != len(first.texts):
            raise ValueError(
                f"{example.where} has {len(example.texts) - 2} hard negatives, and the "
                f"first row {len(first.texts) - 2}; all must have the same number."
            )
        if (example.label is None) != (first.label is None):
            with_label = "lacks" if example.label is None else "has"
            raise ValueError(
                f"{example.where} {with_label} a label, unlike the first row; all rows "
                "must have one, or none."
            )
    return examples


def pair_of_row(row: TableRow, data: ExamplesConfig) -> PairExample:
    """Return the two texts among a row's columns; ValueError if one is missing."""
    columns = pair_columns(row, data)
    return PairExample(tuple(text_of(row, name) for name in columns), where=row.where)


def pair_to_score(row: TableRow, data: ExamplesConfig) -> PairExample:
    """As `pair_of_row`; a pair with a label has NaN, since its value is not needed."""
    known = (data.text_columns,) if data.text_columns else PAIR_COLUMNS
    if not any(set(columns) <= row.values.keys() for columns in known):
        raise ValueError(
            f"{row.where} has the columns {column_names(row.values)}, and this model "
            "compares two texts; name the two by --text-column. For single texts, "
            "`bert-jax embed` writes vectors, and `bert-jax search` finds what is near."
        )
    label = math.nan if data.label_columns[0] in row.values else None
    return PairExample(pair_of_row(row, data).texts, label, row.where)


def _labelled(row: TableRow, data: ExamplesConfig) -> PairExample:
    pair, used = pair_of_row(row, data), pair_columns(row, data)
    column = data.label_columns[0]
    if column in used:
        raise ValueError(
            f"{row.where}: {column} is named for a text and for the labels; name "
            "others by --text-column and --label-column."
        )
    names = data.sentence_pairs.negative_columns or sorted(
        filter(_NEGATIVE.fullmatch, row.values)
    )
    texts = [text_of(row, name) for name in names if name not in used]
    label = None
    if column in row.values:
        label = parse_number(row.values[column], f"{row.where}: {column}")
    return PairExample((*pair.texts, *texts), label, row.where)


def pair_columns(row: TableRow, data: ExamplesConfig) -> tuple[str, ...]:
    """Return the columns of the two texts."""
    if len(data.text_columns) == 1:
        raise ValueError(
            f"text_columns={data.text_columns[0]} is one column; name the two of a "
            "pair by --text-column."
        )
    if data.text_columns:
        return data.text_columns
    for columns in PAIR_COLUMNS:
        if set(columns) <= row.values.keys():
            return columns
    raise ValueError(
        f"{row.where} has the columns {column_names(row.values)}; name the two of a "
        "pair by --text-column."
    )


def require_scores(
    examples: Sequence[PairExample], column: str, limits: tuple[float, float]
) -> None:
    """Raise ValueError unless each example has a label within the limits."""
    low, high = limits
    for example in examples:
        if example.label is None:
            raise ValueError(
                f"{example.where} has no {column}; name the column with the scores by "
                "--label-column."
            )
        if not low <= example.label <= high:
            raise ValueError(
                f"{example.where}: {column}={example.label:g} must be from {low:g} to "
                f"{high:g}; divide all scores by the largest possible one."
            )
    if len({example.label for example in examples}) < 2:
        raise ValueError(
            f"{examples[0].where}: {column} is {examples[0].label:g} in all "
            f"{len(examples)} rows; there is nothing to learn."
        )


def text_ids(examples: Sequence[PairExample]) -> Int[np.ndarray, "N C"]:
    """Return a number for each text, the same one for equal texts."""
    numbers: dict[str, int] = {}
    return np.array(
        [
            [numbers.setdefault(text, len(numbers)) for text in example.texts]
            for example in examples
        ],
        np.int32,
    )


def has_wrong_choice(ids: Int[np.ndarray, "N C"]) -> bool:
    """Return whether any first text can be told from a text that does not belong to it.

    That is a hard negative, or a second text that is not in a pair with it; the numbers
    are those of `text_ids`.
    """
    if ids.shape[1] > 2 and (ids[:, 2:] != ids[:, 1:2]).any():
        return True
    partners: dict[int, set[int]] = {}
    for first, second in ids[:, :2].tolist():
        partners.setdefault(first, {first}).add(second)
        partners.setdefault(second, {second}).add(first)
    choices = set(ids[:, 1].tolist())
    return any(choices - partners[first] for first in set(ids[:, 0].tolist()))


def correlations(
    examples: Sequence[PairExample], values: Sequence[JsonObject]
) -> dict[str, float]:
    """Return `spearman` and `pearson` of the scores with the labels."""
    gold = np.array([example.label for example in examples])
    scores = regression_scores(gold, np.array([value["score"] for value in values]))
    return {name: scores[name] for name in ("spearman", "pearson")}


def report_kind(predictions: Predictions) -> str:
    """Return which error report it is: pairs have a label, or are to be found."""
    has_label = predictions.examples[0].label is not None
    return "scored_pairs" if has_label else "found_pairs"


def write_scores(predictions: Predictions, directory: Path) -> str:
    """Write predictions.tsv: index, score, label and the two texts; return its name.

    The table has no quotes: a tab or a line break in a text is a space.
    """
    examples, values = predictions.examples, predictions.values
    columns = {"score": [f"{value['score']:.9g}" for value in values]}
    if any(example.label is not None for example in examples):
        columns["label"] = [f"{example.label:.9g}" for example in examples]
    columns |= {f"text_{i}": [one.texts[i - 1] for one in examples] for i in (1, 2)}
    write_table(columns, directory / "predictions.tsv")
    return "predictions.tsv"
