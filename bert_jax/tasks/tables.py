"""Tables of text: .csv, .tsv and .jsonl files as rows by column name."""

import csv
import dataclasses
import difflib
import io
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bert_jax.storage.files import object_of_unique_keys

TABLES = (".csv", ".tsv", ".jsonl")
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which no file of text can hold."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_MOST_DIGITS = 1000


@dataclasses.dataclass(frozen=True)
class TableRow:
    """One row of a table, and where it stands."""

    values: dict[str, Any]
    where: str
    """File and line."""


def require_file(path: str | Path, remedy: str) -> None:
    """Refuse what cannot be read as a file from its beginning to its end.

    Raises:
        FileNotFoundError: it is not there, or is a directory, a pipe or a device.
    """
    if Path(path).is_file():
        return
    kind = ""
    if Path(path).exists():
        kind = " but a directory" if Path(path).is_dir() else " but a pipe or a device"
    raise FileNotFoundError(f"{path} is not a file{kind}; {remedy}")


def decode(content: bytes, name: str | Path, at: int = 0) -> str:
    """Bytes of UTF-8 as text.

    Args:
        at: where in the file they begin.

    Raises:
        ValueError: they are no UTF-8.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        wide = at == 0 and content[:2] in _UTF_16
        encoding = "UTF-16" if wide else "WINDOWS-1252"
        raise ValueError(
            f"{name}: byte {content[error.start]:#04x} at {at + error.start} is not "
            f"UTF-8; convert the file, as by `iconv -f {encoding} -t UTF-8` if that is "
            "what it is."
        ) from error


def read_text(path: Path) -> str:
    """A file's text, without a byte order mark.

    Raises:
        ValueError: it is not UTF-8.
    """
    return decode(path.read_bytes(), path).removeprefix("\ufeff")


def read_table(name: str) -> list[TableRow]:
    """The rows of a table with a header, or of JSON objects, one a line.

    A .csv file has its fields quoted where needed (RFC 4180); in a .tsv file quotes are
    characters like any other.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no such table; says in which line.
    """
    path = Path(name)
    require_file(path, "name a .csv, .tsv or .jsonl.")
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


def _delimited(path: Path) -> Iterator[TableRow]:
    lines = read_lines(path, quoted=path.suffix == ".csv")
    _, header = next(lines, (1, []))
    repeated = {name for name in header if header.count(name) > 1}
    if repeated:
        raise ValueError(
            f"{path}, line 1 names {column_names(sorted(repeated))} twice; each column "
            "needs a name of its own."
        )
    for number, fields in lines:
        if len(fields) != len(header):
            raise ValueError(
                f"{path}, line {number} has {len(fields)} fields; the header has "
                f"{len(header)}: {column_names(header)}."
            )
        yield TableRow(dict(zip(header, fields, strict=True)), f"{path}, line {number}")


def _json_lines(path: Path) -> Iterator[TableRow]:
    # Not splitlines: a text may hold one of the rarer line breaks.
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            yield json_row(line, f"{path}, line {number}")


def json_row(line: str, where: str) -> TableRow:
    """A line with a JSON object.

    Raises:
        ValueError: it is none.
    """
    values = parse_json(line, where)
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be a JSON object with a field for each column.")
    return TableRow(values, where)


def parse_json(text: str | bytes, where: str) -> Any:
    """The value that `text` is the JSON of, by RFC 8259 and with each key once.

    Raises:
        ValueError: it is no JSON, or holds NaN, Infinity, a number beyond float64 or
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
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8 ({error}); convert it.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON: {error}.") from error
    except ValueError as error:
        raise ValueError(f"{where}: {str(error).rstrip('.')}.") from error


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON; write a number, or null.")


def _float(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits:.40} is beyond the largest number of 64 bits.")
    return number


def _int(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(
            f"a whole number has {len(digits)} digits, at most {_MOST_DIGITS} are "
            f"read; begins with {digits:.20}."
        )
    return int(digits)


def column_names(names: Iterable[str]) -> str:
    """The names of columns in a message, quoted where one would be misread."""
    plain = re.compile(r"[^\s,'\"]+( [^\s,'\"]+)*")
    return ", ".join(
        name if plain.fullmatch(name) and name.isprintable() else f"{name!r:.80}"
        for name in names
    )


def missing_column_message(where: str, column: str, columns: Iterable[str]) -> str:
    """What to say where a row has no such column: those it has, and which is meant."""
    names, message = list(columns), f"{where} has no {column_names([column])}"
    if names:
        message += f"; its columns are {column_names(names)}"
    folded = {name.strip().casefold(): name for name in names}
    close = difflib.get_close_matches(column.strip().casefold(), folded, n=1)
    if close:
        return f"{message}. Did you mean {column_names([folded[close[0]]])}?"
    if len(names) == 1 and (mark := re.search("[;\t|]", names[0])):
        return f"{message}. Are they parted by {mark[0]!r}? Write commas, or a .tsv."
    return f"{message}."


def text_of(row: TableRow, column: str) -> str:
    """The text in a column.

    Raises:
        ValueError: there is no such column, or no text in it.
    """
    if column not in row.values:
        raise ValueError(missing_column_message(row.where, column, row.values))
    text = row.values[column]
    if not isinstance(text, str):
        raise ValueError(f"{row.where}: {column}={text!r:.80} must be a text.")
    if not text.strip():
        raise ValueError(f"{row.where}: {column} is empty; write a text, or drop it.")
    if HALF_CHARACTER.search(text):
        raise ValueError(
            f"{row.where}: {column} holds half of a surrogate pair, which is no "
            "character; mend it."
        )
    return text
