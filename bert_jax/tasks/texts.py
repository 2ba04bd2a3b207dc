"""Records of texts with classes or numbers: a user's table, or GLUE's files."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.tasks.glue import GLUE, read_glue
from bert_jax.tasks.tables import (
    HALF_CHARACTER,
    TableRow,
    column_names,
    missing_column_message,
    read_table,
    text_of,
)

DEFAULT_COLUMNS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text",),
    ("sentence",),
)
"""Looked for, in this order, where text_columns is not given."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclasses.dataclass(frozen=True)
class TextExample:
    """A text or a pair, and what is to be said of it."""

    texts: tuple[str, ...]
    label: str | float | tuple[str, ...] | None = None
    """A class, a number, or several classes; None: not known."""
    where: str = dataclasses.field(default="", repr=False)
    """File and line; left out where examples are told apart, as files move."""
    group: str = ""
    """Part of the file that has scores of its own."""
    columns: tuple[str, ...] = dataclasses.field(default=(), repr=False, compare=False)
    """Of the file, where it has none for the label."""


def read(name: str, config: ExamplesConfig, number: bool) -> list[TextExample]:
    """The examples of a table, or of a part of GLUE's data.

    Args:
        number: whether labels are numbers.
    """
    if config.glue:
        task = GLUE[config.glue]
        columns = dataclasses.replace(
            config, text_columns=task.texts, label_column=task.label
        )
        rows = read_glue(config.glue, config.path, name)
        return [labelled_example(row, columns, number, group) for row, group in rows]
    if config.path:
        raise ValueError(
            f"data.path={config.path} but no task of GLUE is named; name one, as in "
            "`bert-jax finetune mrpc`, or give the files by --data.train and "
            "--data.validation."
        )
    return [labelled_example(row, config, number) for row in read_table(name)]


def find_text_columns(row: TableRow, config: ExamplesConfig) -> tuple[str, ...]:
    """The columns with the text.

    Raises:
        ValueError: none are named, and none have a usual name.
    """
    if config.text_columns:
        return config.text_columns
    own = (GLUE[config.glue].texts,) if config.glue else ()
    for columns in own + DEFAULT_COLUMNS:
        if set(columns) <= row.values.keys():
            return columns
    raise ValueError(
        f"{row.where} has the columns {column_names(row.values)}; say which hold the "
        "text by --data.text-columns."
    )


def example_without_label(row: TableRow, config: ExamplesConfig) -> TextExample:
    """A row's texts, whatever it holds beside them.

    Raises:
        ValueError: a column is missing or empty.
    """
    texts = tuple(text_of(row, column) for column in find_text_columns(row, config))
    return TextExample(texts, where=row.where)


def labelled_example(
    row: TableRow, config: ExamplesConfig, number: bool = False, group: str = ""
) -> TextExample:
    """A row's texts and label, which may be absent.

    Raises:
        ValueError: a column is missing or empty, or holds both text and label, or a
            label is of the wrong kind.
    """
    if config.label_column in find_text_columns(row, config):
        raise ValueError(
            f"{row.where}: {config.label_column} is named for the text and for the "
            "labels; name two columns by --data.text-columns and --data.label-column."
        )
    found = dataclasses.replace(example_without_label(row, config), group=group)
    if config.label_column not in row.values:
        return dataclasses.replace(found, columns=tuple(row.values))
    return dataclasses.replace(found, label=_label(row, config, number))


def _label(
    row: TableRow, config: ExamplesConfig, number: bool
) -> str | float | tuple[str, ...]:
    value = row.values[config.label_column]
    what = f"{row.where}: {config.label_column}"
    blank = isinstance(value, str) and not value.strip()
    if value is None or blank and not config.multi_label:
        raise ValueError(f"{what} is empty; fill it in, or leave the row out.")
    if number:
        return _number(value, what)
    listed = isinstance(value, list)
    for name in map(str, value if listed else [value]):
        if HALF_CHARACTER.search(name):
            raise ValueError(f"{what} holds half of a surrogate pair; mend it.")
        if "\0" in name:
            raise ValueError(f"{what} holds a NUL character; mend it.")
    if config.multi_label:
        names = value if listed else str(value).split(config.label_separator)
        return tuple(str(name) for name in names if str(name).strip())
    if isinstance(value, list | dict):
        raise ValueError(
            f"{what}={value!r:.80} must be a single class; several in a list take "
            "--data.multi-label."
        )
    return str(value)


def _number(value: Any, what: str) -> float:
    """A number in plain decimal or with an exponent: Python itself takes more."""
    digits = value.strip() if isinstance(value, str) else ""
    if type(value) in (int, float):
        digits = repr(value)
    if not _NUMBER.fullmatch(digits):
        raise ValueError(
            f"{what}={value!r:.40} must be a finite number in the digits 0 to 9, as "
            "-1.5 or 2e-3."
        )
    number = float(digits)
    most = float(np.finfo(np.float32).max)
    if abs(number) > most:
        raise ValueError(
            f"{what}={digits:.40} must be a finite number of 32 bits, at most "
            f"{most:.7g} in size, for training is in float32; scale the labels."
        )
    return number


def classes_of(example: TextExample) -> tuple[str, ...]:
    """The classes that a record names."""
    if example.label is None or isinstance(example.label, float):
        return ()
    return (example.label,) if isinstance(example.label, str) else example.label


def classes(examples: Sequence[TextExample], config: ExamplesConfig) -> tuple[str, ...]:
    """The classes of the training examples.

    Raises:
        ValueError: examples lack a label, or all have the same.
    """
    require_labels(examples, config)
    if len(config.labels) == 1 and not config.multi_label:
        raise ValueError(
            f"data.labels names {config.labels[0]!r} alone; there must be two classes "
            "to tell apart."
        )
    if config.labels or config.glue:
        return config.labels or GLUE[config.glue].labels
    found = sorted({name for example in examples for name in classes_of(example)})
    if len(found) < 2 and not config.multi_label:
        raise ValueError(
            f"{examples[0].where}: {config.label_column} is {found[0]!r} in all "
            f"{len(examples)} rows; there must be two classes to tell apart."
        )
    if not found:
        raise ValueError(
            f"{examples[0].where}: neither this nor any other row names a class in "
            f"{config.label_column}; there is nothing to learn."
        )
    return tuple(found)


def regression_output(
    examples: Sequence[TextExample], config: ExamplesConfig
) -> tuple[str, ...]:
    """The single output of a regression, under its column's name."""
    require_labels(examples, config)
    if len({example.label for example in examples}) < 2:
        raise ValueError(
            f"{examples[0].where}: {config.label_column} is {examples[0].label} in all "
            f"{len(examples)} rows; there is nothing to tell apart."
        )
    return (GLUE[config.glue].label if config.glue else config.label_column,)


def require_labels(examples: Sequence[TextExample], config: ExamplesConfig) -> None:
    """Refuse examples to learn from that lack a label."""
    for example in examples:
        if example.label is None:
            missing = missing_column_message(
                example.where, config.label_column, example.columns
            )
            raise ValueError(
                f"{missing} Name the column with the labels by --data.label-column."
            )


def check(examples: Sequence[TextExample], model: BertConfig) -> None:
    """Refuse classes that the model does not have."""
    for example in examples:
        for name in classes_of(example):
            if name not in model.labels:
                raise ValueError(
                    f"{example.where}: {name!r} is none of the classes that the model "
                    f"has ({', '.join(model.labels)}); mend it, or train with "
                    "--data.labels naming all."
                )
