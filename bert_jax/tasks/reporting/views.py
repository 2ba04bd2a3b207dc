"""What a report shows, for the terminal and for its web page: sections of a few kinds.

The classes become JSON by `dataclasses.asdict`; `kind` names each in the page's script.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

from bert_jax.storage.files import JsonObject

MarkKind = Literal["", "right", "wrong", "gold"]
TableCell = str | float | int | None
"""A value of a table; None if it is not defined."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    format: Literal["text", "whole", "number", "percent"] = "text"
    """Words, whole numbers, numbers of four digits, or fractions."""
    has_bar: bool = False
    """Whether the page draws each value as the length of a bar, too."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of values, of which the first names the row."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[TableCell]]
    last_rows: int = 0
    """The number of rows at the end that are averages, and stay there."""
    is_printed: bool = True
    """Whether the table is printed in a terminal, too."""
    kind: str = "table"


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Counts by gold class (row) and predicted class (column)."""

    title: str
    gold: Sequence[str]
    predicted: Sequence[str]
    counts: Sequence[Sequence[int | None]]
    """None where no count is possible."""
    kind: str = "matrix"


@dataclasses.dataclass(frozen=True)
class Chart:
    """Curves, dots and bars over one axis."""

    title: str
    x: JsonObject
    """The `name` of the axis, its ends `low` and `high`, and whether it is `percent`.
    """
    curves: Sequence[JsonObject] = ()
    """Each a `name`, and `values` in the order of `xs`, by a line or as `dots`."""
    bars: JsonObject | None = None
    """A `name`, and `heights`, each between two of the `edges`."""
    marks: Sequence[Mapping[str, str | float]] = ()
    """Vertical lines, each with the place `at` which it stands, and its `name`."""
    diagonal: str = ""
    """What the line of equal values means; empty: there is none."""
    percent: bool = False
    """Whether the values are fractions."""
    limits: tuple[float, float] | None = None
    """The range of the values; None: as the values need it."""
    note: str = ""
    kind: str = "chart"


@dataclasses.dataclass(frozen=True)
class MarkedSpan:
    """A piece of a text."""

    text: str
    mark: MarkKind = ""
    """Right, wrong (predicted so), or gold and not predicted; "": plain text."""
    label: str = ""
    """What the piece is marked as, such as the type of an entity."""


def spaced(spans: Sequence[MarkedSpan]) -> list[MarkedSpan]:
    """Return spans with a space between each two."""
    pairs = ((MarkedSpan(" "), span) for span in spans)
    return [span for pair in pairs for span in pair][1:]


@dataclasses.dataclass(frozen=True)
class Passage:
    """A text with marks, under a name."""

    name: str
    spans: Sequence[MarkedSpan]


@dataclasses.dataclass(frozen=True)
class Item:
    """An example that the model gets wrong."""

    where: str
    facts: Sequence[tuple[str, str]]
    passages: Sequence[Passage]
    confusions: Sequence[tuple[str, str]] = ()
    """The gold and the predicted class of each error, by which the page selects."""


@dataclasses.dataclass(frozen=True)
class Examples:
    """Examples, the worst first."""

    items: Sequence[Item]
    kind: str = "examples"


Block = Table | Matrix | Chart | Examples


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the report with a title of its own."""

    id: str
    title: str
    note: str
    parts: list[Block]
