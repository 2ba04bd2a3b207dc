"""Readers of tables: .csv, .tsv and .jsonl files as rows of named columns."""

import csv
import dataclasses
import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from bert_jax.storage.files import JsonObject, object_of_unique_keys

TABLES = (".csv", ".tsv", ".jsonl")
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair: not a character, and not encodable as UTF-8."""
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_MAX_DIGITS = 1000
_MAX_NAMES = 16
"""The number of column names in a message."""


@dataclasses.dataclass(frozen=True)
class TableRow:
    """One row of a table."""

    values: JsonObject
    where: str
    """File and line, for messages."""
    may_be_empty: bool = False
    """Whether a text may be empty: rows of a corpus are not chosen one by one."""


def require_file(path: str | Path, remedy: str) -> None:
    """Check that a path is a regular file.

    Raises:
        FileNotFoundError: it does not exist, or is a directory, a pipe or a device.
    """
    if Path(path).is_file():
        return
    kind = ""
    if Path(path).exists():
        kind = " but a directory" if Path(path).is_dir() else " but a pipe or a device"
    raise FileNotFoundError(f"{path} is not a file{kind}; {remedy}")


def decode(content: bytes, name: str | Path, offset: int = 0) -> str:
    """Return bytes of UTF-8 as text.

    Args:
        offset: the position of the bytes in the file.

    Raises:
        ValueError: they are not UTF-8.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        is_utf_16 = offset == 0 and content[:2] in _UTF_16_MARKS
        encoding = "UTF-16" if is_utf_16 else "WINDOWS-1252"
        raise ValueError(
            f"{name}: byte {content[error.start]:#04x} at {offset + error.start} is "
            f"not UTF-8; convert the file, for example by `iconv -f {encoding} -t "
            f"UTF-8` if it is {encoding}."
        ) from error


def read_text(path: Path) -> str:
    """Return a file's text, without a byte order mark.

    Raises:
        ValueError: it is not UTF-8.
    """
    return decode(path.read_bytes(), path).removeprefix("\ufeff")


def read_table(name: str) -> list[TableRow]:
    """Return the rows of a table with a header, or of JSON objects, one per line.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not such a table; the message names the line.
    """
    return list(iterate_table(name))


def iterate_table(name: str) -> Iterator[TableRow]:
    """Yield the rows of a table with a header, or of JSON objects, one per line.

    Fields of a .csv file may be quoted (RFC 4180). In a .tsv file, quotes are ordinary
    characters. One line at a time is in memory.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not such a table; the message names the line.
    """
    path = Path(name)
    require_file(path, "name a .csv, .tsv or .jsonl.")
    if not is_table(path):
        raise ValueError(
            f"{name} ends in {path.suffix or 'nothing'}; it must be .csv, .tsv or "
            ".jsonl, which defines how to read it."
        )
    rows = delimited_rows(path)
    if path.suffix.lower() == ".jsonl":
        rows = (row for _, row in read_json_lines(path))
    row = None
    for row in rows:
        yield row
    if row is None:
        raise ValueError(f"{name} has no rows; it must have at least one.")


def is_table(path: str | Path) -> bool:
    """Return whether the name of a file is that of a table."""
    return Path(path).suffix.lower() in TABLES


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file that line feeds end, with them.

    A byte order mark is left out.

    Raises:
        ValueError: the file is not UTF-8.
    """
    offset = 0
    with path.open("rb") as file:
        for content in file:
            text = decode(content, path, offset)
            yield text if offset else text.removeprefix("\ufeff")
            offset += len(content)


_ENDED = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""A line with its end, which may be a carriage return alone."""


def read_lines(path: Path, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the fields of each row, without blank lines.

    Args:
        quoted: if true, fields are separated by commas and may be quoted; else they
            are separated by tabs, and not quoted.
    """
    lines = (part for line in text_lines(path) for part in _ENDED.findall(line))
    reader = csv.reader(lines, strict=True)
    if not quoted:
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    line_number = 1
    csv.field_size_limit(1 << 30)
    try:
        for fields in reader:
            if fields:
                yield line_number, fields
            line_number = reader.line_num + 1  # a quoted field may span lines
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {line_number}: {error}; a field with a comma, quote or line "
            "break must be quoted, and a quote in it doubled."
        ) from error


def delimited_rows(path: Path) -> Iterator[TableRow]:
    """Yield the rows of a .csv or .tsv file, as `iterate_table`; there may be none."""
    lines = read_lines(path, quoted=path.suffix.lower() == ".csv")
    _, header = next(lines, (1, []))
    repeated = {name for name in header if header.count(name) > 1}
    if repeated:
        raise ValueError(
            f"{path}, line 1 names {column_names(sorted(repeated))} twice; each column "
            "needs its own name."
        )
    for line_number, fields in lines:
        where = f"{path}, line {line_number}"
        if len(fields) != len(header):
            raise ValueError(
                f"{where} has {len(fields)} fields; the header has {len(header)}: "
                f"{column_names(header)}."
            )
        yield TableRow(dict(zip(header, fields, strict=True)), where)


def read_json_lines(path: Path) -> Iterator[tuple[int, TableRow]]:
    """Yield the line number and the row of each JSON object, without blank lines."""
    # Not splitlines, which also splits at line breaks that JSON strings may hold.
    for line_number, line in enumerate(text_lines(path), 1):
        if line.strip():
            row = json_row(line.removesuffix("\n"), f"{path}, line {line_number}")
            yield line_number, row


def json_row(line: str, where: str) -> TableRow:
    """Return the row of a line with a JSON object.

    Raises:
        ValueError: the line is not a JSON object.
    """
    values = parse_json(line, where)
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be a JSON object with a field for each column.")
    return TableRow(values, where)


def parse_json(text: str, where: str) -> Any:
    """Parse JSON (RFC 8259) in which no object has a key twice.

    Raises:
        ValueError: it is not JSON, or holds NaN, Infinity, a number beyond float64 or
            a key twice.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=object_of_unique_keys,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except RecursionError as error:
        raise ValueError(f"{where} is nested too deep to be read.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON: {error}.") from error
    except ValueError as error:
        raise ValueError(f"{where}: {str(error).rstrip('.')}.") from error


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON; write a number, or null.")


def _float(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits:.40} is beyond the largest number of 64 bits.")
    return number


def _int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(
            f"the integer {digits:.20}… has {len(digits)} digits; at most "
            f"{_MAX_DIGITS} are read."
        )
    return int(digits)


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

    Args:
        noun: what the message calls the columns: those of a JSON object are fields.
    """
    names, message = list(columns), f"{where} has no {column_names([column])}"
    if names:
        message += f"; its {noun} are {column_names(names)}"
    folded = {name.strip().casefold(): name for name in names}
    close = difflib.get_close_matches(column.strip().casefold(), folded, n=1)
    if close:
        return f"{message}. Did you mean {column_names([folded[close[0]]])}?"
    if len(names) == 1 and (mark := re.search("[;\t|]", names[0])):
        return f"{message}. Is {mark[0]!r} the separator? Write commas, or a .tsv."
    return f"{message}."


def text_of(row: TableRow, column: str) -> str:
    """Return the text in a column.

    Raises:
        ValueError: there is no such column, or it holds no text.
    """
    if column not in row.values:
        raise ValueError(missing_column_message(row.where, column, row.values))
    text = row.values[column]
    if not isinstance(text, str):
        raise ValueError(f"{row.where}: {column}={text!r:.80} must be a text.")
    if not text.strip() and not row.may_be_empty:
        raise ValueError(f"{row.where}: {column} is empty; write a text, or drop it.")
    if HALF_CHARACTER.search(text):
        raise ValueError(
            f"{row.where}: {column} holds half of a surrogate pair, which is not a "
            "character; correct it."
        )
    return text
