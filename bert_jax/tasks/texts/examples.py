"""Examples of texts with classes or numbers, from the rows of a table."""

import collections
import dataclasses
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bert_jax.config import ExamplesConfig
from bert_jax.config.checks import require
from bert_jax.storage.files import write_lines
from bert_jax.tables.rows import TableRow, column_names, missing_column_message, text_of
from bert_jax.tasks.class_names import class_names, flag
from bert_jax.tasks.texts.glue import GLUE

DEFAULT_COLUMNS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text",),
    ("sentence",),
)
"""The columns to look for, in this order, if text_columns is not given."""
_BREAKS = re.compile(r"\t|\r\n|\r|\n")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclasses.dataclass(frozen=True)
class TextExample:
    """A text or a pair of texts, and its label."""

    texts: tuple[str, ...]
    label: str | float | tuple[str, ...] | None = None
    """A class, a number, or several classes; None if it is not known."""
    where: str = dataclasses.field(default="", repr=False)
    """File and line, for messages; not in the fingerprint, since files are moved."""
    group: str = ""
    """The name of a group of examples that is scored separately; "" for none."""
    columns: tuple[str, ...] = dataclasses.field(default=(), repr=False, compare=False)
    """The columns of the file, if none of them is the label column."""


def require_same_number(example: TextExample, first: TextExample) -> None:
    """Raise ValueError if one example is a pair of texts, and the other is not."""
    if len(example.texts) != len(first.texts):
        raise ValueError(
            f"{example.where} has {len(example.texts)} texts and {first.where} has "
            f"{len(first.texts)}; all rows must have the same number."
        )


def require_num_texts(example: TextExample, number: int) -> None:
    """Raise ValueError unless an example has as many texts as a model reads; 0: any."""
    texts = {1: "a single text", 2: "a pair of texts"}
    require(
        number in (0, len(example.texts)),
        f"{example.where} holds {texts[len(example.texts)]}, and the examples that the "
        f"model learns from hold {texts.get(number)}; name as many columns by "
        "--text-column, in Python pass as many texts.",
    )


def find_text_columns(row: TableRow, config: ExamplesConfig) -> tuple[str, ...]:
    """Return the columns that hold the text; raise ValueError if none is known."""
    if config.text_columns:
        return config.text_columns
    glue_columns = (GLUE[config.glue].texts,) if config.glue else ()
    for columns in glue_columns + DEFAULT_COLUMNS:
        if set(columns) <= row.values.keys():
            return columns
    hint = ""
    if config.delimiter and len(row.values) == 1:  # perhaps that of a run's own files
        hint = f"(--delimiter is {config.delimiter!r}) "
    raise ValueError(
        f"{row.where} has the columns {column_names(row.values)}; name those with "
        f"the text {hint}by --text-column."
    )


def texts_of(row: TableRow, config: ExamplesConfig) -> tuple[str, ...]:
    """Return the texts of a row; its other columns are ignored."""
    return tuple(text_of(row, column) for column in find_text_columns(row, config))


def labelled_example(
    row: TableRow, config: ExamplesConfig, is_regression: bool, group: str
) -> TextExample:
    """Return the texts of a row, and its label if there is a label column.

    Raise ValueError if a column is missing, empty or named for both, or a label wrong.
    """
    columns = config.label_columns
    for name in set(columns) & set(find_text_columns(row, config)):
        raise ValueError(
            f"{row.where}: {name} is named for the text and for the "
            "labels; name two columns by --text-column and --label-column."
        )
    texts = texts_of(row, config)
    missing = [name for name in columns if name not in row.values]
    if len(missing) == len(columns):
        return TextExample(texts, None, row.where, group, tuple(row.values))
    if missing:
        raise ValueError(missing_column_message(row.where, missing[0], row.values))
    label: str | float | tuple[str, ...]
    first, where = row.values[columns[0]], f"{row.where}: {columns[0]}"
    if len(columns) > 1:
        flags = [flag(row.values[name], f"{row.where}: {name}") for name in columns]
        label = tuple(itertools.compress(columns, flags))
    elif is_regression:
        label = parse_number(first, where)
    else:
        separator = config.label_separator if config.multi_label else ""
        names = class_names(first, where, separator)
        label = names if separator else names[0]
    return TextExample(texts, label, row.where, group)


def parse_number(value: object, where: str) -> float:
    """Parse a number of 32 bits, or raise ValueError; `float` alone takes "1_000"."""
    digits = value.strip() if isinstance(value, str) else ""
    if type(value) in (int, float):
        digits = repr(value)
    if not _NUMBER.fullmatch(digits):
        raise ValueError(
            f"{where}={value!r:.40} must be a finite number in the digits 0 to 9, such "
            "as -1.5 (with a point, and no comma) or 2e-3."
        )
    number = float(digits)
    largest = float(np.finfo(np.float32).max)
    if abs(number) > largest:
        raise ValueError(
            f"{where}={digits:.40} must be a finite number of 32 bits, at most "
            f"{largest:.7g} in size, because training is in float32; scale the labels."
        )
    return number


def significant_digits(value: float, unit: float) -> int:
    """Return nine digits, which determine a float32, or as many as it takes in units.

    `unit` is the deviation of the numbers that are learned.
    """
    return 9 + math.ceil(math.log10(min(max(1.0, abs(value) / unit), 1e8)))


def classes_of(example: TextExample) -> tuple[str, ...]:
    """Return the classes of an example: none, one or several."""
    if example.label is None or isinstance(example.label, float):
        return ()
    return (example.label,) if isinstance(example.label, str) else example.label


def write_table(columns: Mapping[str, Sequence[str]], path: Path) -> None:
    """Write columns after an `index`, without quotes: tabs, line breaks are spaces."""
    lines = ["\t".join(("index", *columns))]
    for i, cells in enumerate(zip(*columns.values(), strict=True)):
        lines.append("\t".join([str(i), *(_BREAKS.sub(" ", cell) for cell in cells)]))
    write_lines(lines, path)


def name_counts(examples: Sequence[TextExample]) -> collections.Counter[str]:
    """Return how many examples have each class, by its name in the file."""
    return collections.Counter(
        name for example in examples for name in classes_of(example)
    )


def require_labels(examples: Sequence[TextExample], config: ExamplesConfig) -> None:
    """Raise ValueError if a training example has no label."""
    column = config.label_columns[0]
    for example in examples:
        if example.label is None:
            message = missing_column_message(example.where, column, example.columns)
            raise ValueError(
                f"{message} Name the column with the labels by --label-column."
            )
