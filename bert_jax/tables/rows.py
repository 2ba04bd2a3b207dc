"""A row of a table, the texts in its columns, and messages about them."""

import dataclasses
import difflib
import re
from collections.abc import Iterable

from bert_jax.storage.files import JsonObject

HALF_CHARACTER = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair: not a character, and not encodable as UTF-8."""
_MAX_NAMES = 16
"""The number of column names in a message."""


@dataclasses.dataclass(frozen=True)
class TableRow:
    """One row of a table."""

    values: JsonObject
    where: str
    """File and line, for messages."""
    problem: str = ""
    """Why the row cannot be read, with file and line; `values` may then lack columns.
    """


def column_names(names: Iterable[str]) -> str:
    """Return column names for a message, quoted if they would be misread.

    The first `_MAX_NAMES` are listed, and the others counted.
    """
    plain = re.compile(r"[^\s,'\"]+( [^\s,'\"]+)*")
    listed = [
        name[:80] if plain.fullmatch(name) and name.isprintable() else f"{name!r:.80}"
        for name in names
    ]
    if (num_others := len(listed) - _MAX_NAMES) > 1:
        listed[_MAX_NAMES:] = [f"… and {num_others:,} others"]
    return ", ".join(listed)


def missing_column_message(
    where: str, column: str, columns: Iterable[str], noun: str = "columns"
) -> str:
    """Return a message with the existing columns, and the one that may be meant.

    The `noun` is the message's word for columns: "fields" for a JSON object.
    """
    names, message = list(columns), f"{where} has no {column_names([column])}"
    if names:
        message += f"; its {noun} are {column_names(names)}"
    if "," in column and {name.strip() for name in column.split(",")} <= {*names}:
        return f"{message}; write the names of several with spaces between."
    folded = {name.strip().casefold(): name for name in names}
    close = difflib.get_close_matches(column.strip().casefold(), folded, n=1)
    if close:
        return f"{message}. Did you mean {column_names([folded[close[0]]])}?"
    return f"{message}."


def text_of(row: TableRow, column: str) -> str:
    """Return the text in a column; raise ValueError if it is missing or no text."""
    if column not in row.values:
        raise ValueError(missing_column_message(row.where, column, row.values))
    text = row.values[column]
    if not isinstance(text, str):
        raise ValueError(f"{row.where}: {column}={text!r:.80} must be a text.")
    if not text.strip():
        raise ValueError(f"{row.where}: {column} is empty; write a text, or drop it.")
    if HALF_CHARACTER.search(text):
        raise ValueError(
            f"{row.where}: {column} holds half of a surrogate pair, which is not a "
            "character; correct it."
        )
    return text
