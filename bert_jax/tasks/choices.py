"""Questions with choices: SWAG's and CODAH's files, and JSON lines."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.config import ExamplesConfig
from bert_jax.tasks.files import split_file
from bert_jax.tasks.tables import (
    HALF_CHARACTER,
    TableRow,
    column_names,
    read_lines,
    read_table,
    require_file,
    text_of,
)

PUBLISHED = (
    ("train.csv", "val.csv", "test.csv"),
    ("train.jsonl", "validation.jsonl", "test.jsonl"),
    ("full_data.tsv", "", ""),
)
"""SWAG, JSON lines, CODAH: names of the training, validation and test file."""

_ENDING = re.compile("ending[0-9]+")
_CODAH = "category, question, four answers, number of the right one"


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    """A text, and what may follow it."""

    context: str
    choices: tuple[str, ...]
    question: str = ""
    """What stands before each choice, in the second segment."""
    label: int | None = None
    """The right one's number, from 0; None: not known."""
    where: str = ""
    """File and line."""
    columns: tuple[str, ...] = dataclasses.field(default=(), repr=False, compare=False)
    """Of the file, where it has none for the label."""


def read(name: str, config: ExamplesConfig) -> list[ChoiceExample]:
    """Read the choices of a file, or of a part of `config.path`.

    A .csv file has SWAG's columns: `sent1` is the context, and `sent2` the start of
    the sentence that `ending0`, `ending1`… would end. A .tsv file is CODAH's, without a
    header: category, question, four answers, the right one's number. A .jsonl file has
    `context`, `choices`, and if need be `question`. The label is a number from 0.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a row lacks a column or a text, a label is no number, or rows
            differ in their number of choices.
    """
    path = split_file(name, config.path, PUBLISHED)
    if Path(path).suffix == ".tsv":
        records = _read_codah(path)
    else:
        of = choice_from_row if Path(path).suffix == ".jsonl" else _of_swag
        records = [of(row, config.label_column) for row in read_table(path)]
    if not records:
        raise ValueError(f"{path} has no rows; it must have one at least.")
    number = len(records[0].choices)
    for record in records:
        if len(record.choices) != number:
            raise ValueError(
                f"{record.where} has {len(record.choices)} choices, and the first "
                f"{number}; all must have the same number."
            )
    return records


def _read_codah(path: str) -> list[ChoiceExample]:
    require_file(path, "name a .csv, .tsv or .jsonl.")
    records = []
    for line, fields in read_lines(Path(path), quoted=False):
        row = TableRow({}, f"{path}, line {line}")
        if len(fields) != 7:
            raise ValueError(
                f"{row.where} has {len(fields)} fields; it must have 7: {_CODAH}."
            )
        _, context, *choices, label = fields
        records.append(_choice(row, context, choices, label))
    return records


def _of_swag(row: TableRow, label_column: str) -> ChoiceExample:
    endings = [name for name in row.values if _ENDING.fullmatch(name)]
    missing = [name for name in ("sent1", "sent2") if name not in row.values]
    if missing or len(endings) < 2:
        raise ValueError(
            f"{row.where} has the columns {column_names(row.values)}; it must have "
            "sent1, sent2, ending0, ending1 and so on, as SWAG's files do."
        )
    choices = [text_of(row, name) for name in endings]
    label = row.values.get(label_column)
    return _choice(row, text_of(row, "sent1"), choices, label, row.values["sent2"])


def choice_from_row(row: TableRow, label_column: str) -> ChoiceExample:
    """The fields `context`, `choices`, and if they are there `question` and the label.

    Raises:
        ValueError: one is missing, or is none.
    """
    choices = row.values.get("choices")
    if not isinstance(choices, list) or len(choices) < 2:
        raise ValueError(
            f"{row.where}: choices={choices!r:.40} must be a list of two texts or more."
        )
    question = text_of(row, "question") if "question" in row.values else ""
    label = row.values.get(label_column)
    return _choice(row, text_of(row, "context"), choices, label, question)


def _choice(
    row: TableRow, context: str, choices: Sequence[Any], label: Any, question: str = ""
) -> ChoiceExample:
    for i, text in enumerate([context, *choices]):
        if not isinstance(text, str) or not text.strip() or HALF_CHARACTER.search(text):
            what = f"choice {i - 1}" if i else "the context"
            raise ValueError(f"{row.where}: {what} is {text!r:.40}; it must be a text.")
    number = None if label is None or label == "" else _number(label, row.where)
    columns = tuple(row.values) if label is None else ()
    return ChoiceExample(context, tuple(choices), question, number, row.where, columns)


def _number(label: Any, where: str) -> int:
    if isinstance(label, str) and re.fullmatch(r" *[0-9]{1,9} *", label):
        return int(label)
    if type(label) is int:
        return label
    raise ValueError(
        f"{where}: label={label!r:.40} must be the number of the right choice, from 0."
    )
