"""The one reader of tables: CSV, TSV, JSON lines, Parquet and lines of text.

Files may be compressed. Training, evaluation and prediction read the same formats.
"""

import contextlib
import csv
import itertools
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bert_jax.tables.json_lines import json_row, parse_json
from bert_jax.tables.lines import (
    STDIN,
    damaged,
    display_name,
    ended_lines,
    is_compressed,
    open_file,
    read_lines,
    read_text,
    require_file,
    suffix_of,
)
from bert_jax.tables.memory import MemoryTable, row_of
from bert_jax.tables.rows import TableRow, column_names, missing_column_message, text_of
from bert_jax.terminal.messages import warn

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_JSON_LINES = (".jsonl", ".ndjson")
_ANY_LINES = ("", ".json")
"""Suffixes of files that hold lines of JSON, or of text."""
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_OTHERS = {";": "semicolons", "\t": "tabs", "|": "vertical bars", ",": "commas"}
"""Separators that a header may have in place of the one that the suffix says."""
_NAMED = {"tab": "\t", r"\t": "\t"}
_ROWS_PER_BATCH, _HEAD_BYTES = 256, 4096
# Of a row group, which may be a whole file, pyarrow else reads all into memory.
_STREAMED: dict[str, Any] = {"pre_buffer": False, "buffer_size": 1 << 20}


def is_table(path: str | Path) -> bool:
    """Return whether a file is a table by the suffix of its name."""
    return suffix_of(path) in TABLES


def read_table(name: str, delimiter: str = "") -> list[TableRow]:
    """Return the rows of a table; raise ValueError at the first that is damaged."""
    return list(undamaged(table_rows(name, delimiter)))


def undamaged(rows: Iterable[TableRow]) -> Iterator[TableRow]:
    """Yield rows; raise ValueError at the first one that cannot be read."""
    for row in rows:
        if row.problem:
            raise ValueError(row.problem)
        yield row


def table_rows(name: str, delimiter: str = "") -> Iterator[TableRow]:
    """Yield the rows of a table, also those that are damaged.

    One row at a time is in memory, of a .parquet file some hundreds. Raise
    FileNotFoundError if there is no such file, or ValueError if it is not a table, or
    has no rows.
    """
    require_file(name, "name a .csv, .tsv or .jsonl.")
    if suffix_of(name) not in (*TABLES, ".json"):
        raise ValueError(
            f"{name} ends in {Path(name).suffix or 'nothing'}; it must be .csv, .tsv "
            "or .jsonl, also with .gz or .zst, or .parquet, which defines how to read "
            "it."
        )
    row = None
    for row in source_rows(name, delimiter=delimiter):
        yield row
    if row is None:
        raise ValueError(f"{name} has no rows; it must have at least one.")


def named_text_of(row: TableRow, column: str) -> str:
    """Return the text in a column that an option names; errors as `text_of`."""
    if column in row.values:
        return text_of(row, column)
    message = missing_column_message(row.where, column, row.values)
    raise ValueError(row.problem or f"{message} Name the column by --text-column.")


def source_rows(
    source: str,
    text_column: str = "text",
    delimiter: str = "",
    notify: Callable[[str], None] = warn,
) -> Iterator[TableRow]:
    """Yield the rows of a table or of lines of text; there may be none.

    Fields of a .csv file may be quoted (RFC 4180). In a .tsv file, quotes are ordinary
    characters. A line of standard input, or of a file without a suffix, is JSON if it
    begins with {, else a text. Blank lines are rows after texts, but not of tables.

    The `source` is a file, - for standard input, or a `MemoryTable`; a line of text is
    its `text_column`. The `delimiter` is between the fields of a .csv or .tsv file; "":
    the one that its header has, if its suffix says another. `notify` takes a line on
    what was found. Raise FileNotFoundError if there is no such file, or ValueError if
    it is damaged, or is not what its name says.
    """
    kind = suffix_of(source)
    if isinstance(source, MemoryTable):
        return source.rows()
    if kind == ".parquet":
        require_file(source, "name a table.")
        return _parquet_rows(source)
    if kind in _SEPARATORS:
        return _delimited_rows(source, delimiter, notify)
    if kind in _JSON_LINES:
        return _json_rows(source)
    if kind == ".json" and (values := _array(source)) is not None:
        return (
            row_of(value, f"{source}, object {number}")
            for number, value in enumerate(values, 1)
        )
    return _text_rows(source, text_column)


def _array(source: str) -> list[object] | None:
    """Return the values of a file that is a JSON array; None: it holds lines."""
    with open_file(source) as file:
        head = file.read(_HEAD_BYTES).removeprefix(BOM_UTF8).lstrip()
    if not head.startswith(b"["):
        return None
    try:
        values: list[object] = parse_json(read_text(Path(source)), source)
        return values
    except ValueError:
        if re.match(rb"\[\s*\{", head):
            raise
        return None  # a line of text may begin so


def _text_rows(source: str, column: str) -> Iterator[TableRow]:
    name, num_blank = display_name(source), 0
    may_be_json, is_json = suffix_of(source) in _ANY_LINES, False
    for number, line in enumerate(read_lines(source), 1):
        if source != STDIN and not line.strip():
            num_blank += not is_json  # the last lines of a file may be blank
            continue
        for before in range(number - num_blank, number):
            yield TableRow({column: ""}, f"{name}, line {before}")
        num_blank, where = 0, f"{name}, line {number}"
        if is_json := may_be_json and line.lstrip().startswith("{"):
            yield json_row(line, where)
        else:
            yield TableRow({column: line}, where)


def _json_rows(source: str) -> Iterator[TableRow]:
    """Yield the row of each JSON object, without blank lines."""
    for number, line in enumerate(ended_lines(source), 1):
        if line.strip():
            yield json_row(line.rstrip("\r\n"), f"{source}, line {number}")


def tab_separated(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the fields of each line, without blank lines.

    Quotes are ordinary characters.
    """
    for number, line in enumerate(ended_lines(str(path)), 1):
        if text := line.rstrip("\r\n"):
            yield number, text.split("\t")


def _delimited_rows(
    name: str, delimiter: str, notify: Callable[[str], None]
) -> Iterator[TableRow]:
    csv.field_size_limit(1 << 30)
    lines = ended_lines(name)
    head = list(itertools.islice(lines, 1))
    while head and not head[-1].strip("\r\n") and (line := next(lines, None)):
        head.append(line)
    separator, quoted = _separator(name, head, delimiter, notify)
    records = _records(itertools.chain(head, lines), name, separator, quoted)
    if not quoted:
        records = _telling_of_quotes(records, name, notify)
    number, header, problem = next(records, (1, [], ""))
    repeated = {name for name in header if header.count(name) > 1}
    if problem or repeated:
        raise ValueError(
            problem
            or f"{name}, line {number} names {column_names(sorted(repeated))} twice; "
            "each column needs its own name."
        )
    for number, fields, problem in records:
        where = f"{name}, line {number}"
        if not problem and len(fields) != len(header):
            problem = (
                f"{where} has {len(fields)} fields; the header has {len(header)}: "
                f"{column_names(header)}."
            )
        elif fields == header and len(header) > 1:  # two files, one after the other
            problem = f"{where} is the header again; drop it."
        yield TableRow(dict(zip(header, fields, strict=False)), where, problem)


def _separator(
    name: str, head: list[str], delimiter: str, notify: Callable[[str], None]
) -> tuple[str, bool]:
    """Return the separator of fields, and whether they may be quoted.

    A first line sep=; is how spreadsheets name the separator; it is removed.
    """
    usual = _SEPARATORS[suffix_of(name)]
    if head and (match := re.fullmatch('"?sep=(.)"?[\r\n]*', head[-1])):
        head[-1] = "\n"
        delimiter = delimiter or match[1]
    separator = _NAMED.get(delimiter, delimiter) or usual
    if head and not delimiter and _num_fields(head[-1], usual) == 1:
        counts = {mark: _num_fields(head[-1], mark) for mark in _OTHERS}
        best = max(counts, key=lambda mark: counts[mark])
        if counts[best] > 1:
            separator = best
            notify(
                f"{name}: its header is separated by {_OTHERS[best]}, and so it is "
                "read; --delimiter names another one."
            )
    return separator, usual == "," or separator != "\t"


def _num_fields(line: str, separator: str) -> int:
    return len(next(csv.reader([line], delimiter=separator), []))


def _records(
    lines: Iterator[str], name: str, separator: str, quoted: bool
) -> Iterator[tuple[int, list[str], str]]:
    """Yield the line number of each record, its fields, and why it cannot be read."""
    reader = csv.reader(lines, delimiter=separator, strict=True)
    if not quoted:
        reader = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE)
    number = 1
    fields: list[str] | None = []
    while fields is not None:
        try:
            if fields := next(reader, None):
                yield number, fields, ""
        except csv.Error as error:
            is_open = "unexpected end" in str(error)
            last = number if is_open else max(reader.line_num, number)
            taken = f"lines {number} to {last}" if last > number else f"line {number}"
            problem = (
                f"{name}, {taken}: {error}; a field with a separator, quote or "
                "line break must be quoted, and a quote in it doubled."
            )
            if is_open:  # all other rows are lost
                raise ValueError(problem) from error
            # A quote that does not end takes the lines after it, up to another quote.
            for lost in range(number, last + 1):
                yield lost, [], problem
        number = reader.line_num + 1  # a quoted field may span lines


def _telling_of_quotes(
    records: Iterator[tuple[int, list[str], str]],
    name: str,
    notify: Callable[[str], None],
) -> Iterator[tuple[int, list[str], str]]:
    """Yield records; tell of the first one whose fields are quoted, as in .csv."""
    for number, fields, problem in records:
        starts = [field for field in fields if field[:1] == '"']
        is_whole = 1 < len(starts) == len(fields)
        is_quoted = starts and (
            any('""' in field[1:] for field in starts)
            or (is_whole and all(field[1:][-1:] == '"' for field in fields))
        )
        if is_quoted:
            notify(
                f"{name}, line {number} has fields in quotes, which a .tsv has as "
                "characters of the text. If they only enclose fields, give the file a "
                "name in .csv."
            )
        yield number, fields, problem
        if is_quoted:
            break
    yield from records


@contextlib.contextmanager
def open_parquet(name: str) -> Iterator[Any]:
    """Open a pyarrow.parquet.ParquetFile; raise ValueError if it is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(name, page_checksum_verification=True, **_STREAMED) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk
            raise
        raise damaged(name, "Parquet", error) from error


def _parquet_rows(name: str) -> Iterator[TableRow]:
    if is_compressed(name):
        raise ValueError(f"{name} is of an unsupported kind; unpack it.")
    with open_parquet(name) as file:
        names, number = file.schema_arrow.names, 0
        if len(set(names)) < len(names):
            raise damaged(name, "Parquet", "it has two columns of one name")
        for batch in file.iter_batches(_ROWS_PER_BATCH):
            for values in _batch_rows(batch):
                number += 1
                yield row_of(values, f"{name}, row {number}")


def _batch_rows(batch: Any) -> list[dict[str, object]]:
    """Return the rows of some columns of Arrow, in Python's types.

    A value that Python has no type for, as nanoseconds, is text, in a column that may
    not even be asked for; one that is damaged is an `_Unreadable`.
    """
    # Arrow raises errors of many classes, also pytz's.
    with contextlib.suppress(Exception):
        rows: list[dict[str, object]] = batch.to_pylist()
        return rows
    columns = [list(map(_python_value, column)) for column in batch.columns]
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _python_value(scalar: Any) -> object:
    import pyarrow as pa

    for convert in (scalar.as_py, lambda: scalar.cast(pa.string()).as_py()):
        with contextlib.suppress(Exception):
            return convert()
    return _Unreadable()


class _Unreadable:
    """A value that cannot be read; what needs it says that it is no text."""

    def __repr__(self) -> str:
        return "(a damaged value)"
