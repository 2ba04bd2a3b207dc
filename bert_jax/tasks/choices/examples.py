"""Readers of multiple-choice files: SWAG's and CODAH's, and JSON lines."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.config import ExamplesConfig
from bert_jax.tables.damage import parse_rows
from bert_jax.tables.lines import require_file, suffix_of
from bert_jax.tables.read import tab_separated, table_rows
from bert_jax.tables.rows import (
    HALF_CHARACTER,
    TableRow,
    column_names,
    missing_column_message,
    text_of,
)
from bert_jax.tasks.splits import split_file

PUBLISHED = (
    ("train.csv", "val.csv", "test.csv"),
    ("train.jsonl", "validation.jsonl", "test.jsonl"),
)
"""The training, validation and test file of SWAG, and of JSON lines."""

_ENDING = re.compile("ending[0-9]+")
_CODAH_FIELDS = "category, question, four answers, number of the right one"


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    """A text, and the choices for what follows it."""

    context: str
    choices: tuple[str, ...]
    question: str = ""
    """A text that is put before each choice, in the second segment."""
    label: int | None = None
    """The index of the right choice; None if it is not known."""
    where: str = ""
    """File and line, for messages."""
    columns: tuple[str, ...] = dataclasses.field(default=(), repr=False, compare=False)
    """The columns of the file, if none of them is the label column."""


def read(name: str, config: ExamplesConfig) -> list[ChoiceExample]:
    """Return the examples of a file, or of a split of `config.path`.

    A .csv or .tsv file has SWAG's columns: `sent1` is the context, `sent2` the start of
    a sentence, and `ending0`, `ending1`… the ends to choose from; the last ones may be
    empty, if the row has fewer. Another .tsv file is CODAH's, without a header:
    category, question, four answers, index of the right one. A .jsonl file has
    `context`, `choices` and optionally `question`. Labels count from 0. Raise
    FileNotFoundError if there is no such file, and ValueError if a row lacks a column
    or a text, or a label is not an integer.
    """
    path = split_file(name, config.path, PUBLISHED)
    column = config.label_columns[0]
    if is_codah(path):
        rows = list(codah_rows(path, column))
    else:
        rows = list(table_rows(path, config.delimiter))
    readable = next((row.values for row in rows if not row.problem), {})
    is_swag = suffix_of(path) == ".csv" or "sent1" in readable
    parse = choice_from_swag if is_swag else choice_from_row
    examples = parse_rows(
        path,
        rows,
        lambda row: parse(row, column),
        config.skip_damaged,
        has_label=lambda one: one.label is not None,
    )
    if not examples:
        raise ValueError(f"{path} has no rows; it must have at least one.")
    return examples


def is_codah(path: str) -> bool:
    """Return whether a file is CODAH's: a .tsv without a header of SWAG's columns.

    Raise FileNotFoundError if there is no such file.
    """
    if suffix_of(path) != ".tsv":
        return False
    require_file(path, "name a .csv, .tsv or .jsonl.")
    _, fields = next(tab_separated(Path(path)), (1, []))
    # The columns of a table may be separated by another mark, or quoted.
    return not any("sent1" in field for field in fields)


def codah_rows(path: str, label_column: str = "label") -> Iterator[TableRow]:
    """Yield the rows of a file of CODAH's with the fields of `choice_from_row`.

    A first line that ends in the name of the label column is a header.
    """
    for line_number, fields in tab_separated(Path(path)):
        if line_number == 1 and fields[-1] == label_column:
            continue
        where = f"{path}, line {line_number}"
        if len(fields) != 7:
            rule = f"{len(fields)} fields; it must have 7: {_CODAH_FIELDS}."
            yield TableRow({}, where, f"{where} has {rule}")
            continue
        category, context, *choices, label = fields
        problem = ""
        if not context.strip():
            problem = f"{where}: the context is {context!r:.40}; it must be a text."
        texts = {"category": category, "context": context, "choices": choices}
        yield TableRow({label_column: label or None} | texts, where, problem)


def choice_from_swag(row: TableRow, label_column: str) -> ChoiceExample:
    """Return the example of a row of SWAG's columns; ValueError if one lacks text."""
    # By their numbers, since a label is one, whatever the order of columns.
    endings = sorted(filter(_ENDING.fullmatch, row.values), key=lambda n: int(n[6:]))
    if not {"sent1", "sent2"} <= row.values.keys() or len(endings) < 2:
        raise ValueError(
            f"{row.where} has the columns {column_names(row.values)}; it must have "
            "sent1, sent2, ending0, ending1 and so on, as SWAG's files do."
        )
    while len(endings) > 2 and row.values[endings[-1]] in (None, ""):
        endings.pop()
    choices = [text_of(row, name) for name in endings]
    label, start = row.values.get(label_column), _optional_text(row, "sent2")
    return _example(row, text_of(row, "sent1"), choices, label, start)


def choice_from_row(row: TableRow, label_column: str) -> ChoiceExample:
    """Return the example of a row with `context`, `choices` and perhaps `question`.

    Raise ValueError if one is missing or has the wrong type; the label is optional.
    """
    if "choices" not in row.values:
        raise ValueError(missing_column_message(row.where, "choices", row.values))
    choices = row.values["choices"]
    if not isinstance(choices, list) or len(choices) < 2:
        raise ValueError(
            f"{row.where}: choices={choices!r:.40} must be a list of at least two "
            "texts."
        )
    question, label = _optional_text(row, "question"), row.values.get(label_column)
    return _example(row, text_of(row, "context"), choices, label, question)


def _optional_text(row: TableRow, column: str) -> str:
    return text_of(row, column) if row.values.get(column) not in (None, "") else ""


def _example(
    row: TableRow, context: str, choices: Sequence[Any], label: Any, question: str = ""
) -> ChoiceExample:
    for i, text in enumerate([context, *choices]):
        if not isinstance(text, str) or not text.strip() or HALF_CHARACTER.search(text):
            name = f"choice {i - 1}" if i else "the context"
            raise ValueError(f"{row.where}: {name} is {text!r:.40}; it must be a text.")
    columns = tuple(row.values) if label is None else ()
    if isinstance(label, str) and re.fullmatch(r" *[0-9]{1,9}(\.0*)? *", label):
        label = float(label)  # as pandas writes a column where some are unknown
    if type(label) is int or (isinstance(label, float) and label.is_integer()):
        label = int(label)
    elif label not in (None, ""):
        raise ValueError(
            f"{row.where}: label={label!r:.40} must be the number of the right choice, "
            "from 0."
        )
    index = None if label == "" else label
    return ChoiceExample(context, tuple(choices), question, index, row.where, columns)
