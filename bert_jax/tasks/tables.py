"""Tables of text: .csv, .tsv and .jsonl files as rows by column name."""

import csv
import dataclasses
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TABLES = (".csv", ".tsv", ".jsonl")
_HALF = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a table, and where it stands."""

    values: dict[str, Any]
    where: str
    """File and line."""


def read_text(path: Path) -> str:
    """A file's text, without a byte order mark.

    Raises:
        ValueError: it is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: byte {error.object[error.start]:#04x} at {error.start} is not "
            "UTF-8; convert the file."
        ) from error


def read_table(name: str) -> list[Row]:
    """The rows of a table with a header, or of JSON objects, one a line.

    A .csv file has its fields quoted where needed (RFC 4180); in a .tsv file quotes are
    characters like any other.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no such table; says in which line.
    """
    path = Path(name)
    if not path.is_file():
        raise FileNotFoundError(f"{name} is not a file; name a .csv, .tsv or .jsonl.")
    if path.suffix not in TABLES:
        raise ValueError(
            f"{name} ends in {path.suffix or 'nothing'}; it must be .csv, .tsv or "
            ".jsonl, which tells how to read it."
        )
    read = _json_lines if path.suffix == ".jsonl" else _delimited
    rows = list(read(path))
    if not rows:
        raise ValueError(f"{name} has no rows; it must have one at least.")
    return rows


def read_lines(path: Path, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each row of a delimited file; blank lines are none.

    Args:
        quoted: commas between fields that may be quoted; else tabs, and no quotes.
    """
    text = io.StringIO(read_text(path), newline="")
    style: dict[str, Any] = {"strict": True}
    if not quoted:
        style = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    reader = csv.reader(text, **style)
    number = 1
    csv.field_size_limit(1 << 30)
    try:
        for fields in reader:
            if fields:
                yield number, fields
            number = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {number}: {error}; a field with a comma, quote or line "
            "break must be quoted, and a quote in it doubled."
        ) from error


def _delimited(path: Path) -> Iterator[Row]:
    lines = read_lines(path, quoted=path.suffix == ".csv")
    _, header = next(lines, (1, []))
    repeated = {name for name in header if header.count(name) > 1}
    if repeated:
        raise ValueError(
            f"{path}, line 1 names {', '.join(sorted(repeated))} twice; each column "
            "needs a name of its own."
        )
    for number, fields in lines:
        if len(fields) != len(header):
            raise ValueError(
                f"{path}, line {number} has {len(fields)} fields; the header has "
                f"{len(header)}: {', '.join(header)}."
            )
        yield Row(dict(zip(header, fields, strict=True)), f"{path}, line {number}")


def _json_lines(path: Path) -> Iterator[Row]:
    # Not splitlines: a text may hold one of the rarer line breaks.
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            yield json_row(line, f"{path}, line {number}")


def json_row(line: str, where: str) -> Row:
    """A line with a JSON object.

    Raises:
        ValueError: it is none.
    """
    try:
        values = json.loads(line)
    except RecursionError as error:
        raise ValueError(f"{where} is nested too deep to be read.") from error
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be a JSON object with a field for each column.")
    return Row(values, where)


def text_of(row: Row, column: str) -> str:
    """The text in a column.

    Raises:
        ValueError: there is no such column, or no text in it.
    """
    if column not in row.values:
        raise ValueError(
            f"{row.where} has no {column}; its columns are {', '.join(row.values)}."
        )
    text = row.values[column]
    if not isinstance(text, str):
        raise ValueError(f"{row.where}: {column}={text!r} must be a text.")
    if not text.strip():
        raise ValueError(f"{row.where}: {column} is empty; write a text, or drop it.")
    if _HALF.search(text):
        raise ValueError(
            f"{row.where}: {column} holds half of a surrogate pair, which is no "
            "character; mend it."
        )
    return text
