"""Tables of results that are written row by row: .jsonl, .csv and .parquet files."""

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.storage.files import (
    JsonObject,
    atomic_file,
    name_path_in_errors,
    require_output_file,
    temporary_beside,
)

SUFFIXES = (".jsonl", ".csv", ".parquet")
_CHUNK_ROWS = 1024
_ROW_GROUP_BYTES = 64 << 20
"""Of a row group of a .parquet file, in memory; pyarrow splits one of 2^20 rows."""


def write_rows(
    chunks: Iterable[Sequence[JsonObject]], path: Path, allow_no_row: bool = False
) -> int:
    """Write rows, of which one chunk at a time is in memory; return their number.

    The file is written completely or not at all. In .csv and .parquet files each field
    is a column, with one for each entry of an object, as in `probabilities.positive`. A
    list is written in a .csv file as JSON. What a row lacks is empty.

    Raise ValueError if the file name has another suffix, there is no row, unless
    `allow_no_row`, two fields become one column, or a column of a .parquet file has
    values of several types; or OSError if the file cannot be written.
    """
    require_output_file(path, *SUFFIXES)
    kind = path.suffix.lower()
    columns = _Columns(kind)
    with atomic_file(path) as output, temporary_beside(path) as lines:
        if kind == ".jsonl":
            lines = output
        else:  # the columns and their types are known after all rows
            chunks = map(columns.add, chunks)
        num_rows = _write_lines(chunks, lines, path)
        if not num_rows and not allow_no_row:
            raise ValueError(f"There is no row to write to {path}.")
        with name_path_in_errors(path):
            if kind == ".csv":
                _write_csv(lines, columns, output)
            elif kind == ".parquet":
                _write_parquet(lines, columns, output)
    return num_rows


def require_one_table(rows: Iterator[JsonObject], kind: str) -> None:
    """Raise ValueError if `write_rows` would refuse rows, before they are computed."""
    columns = _Columns(kind)
    while chunk := list(itertools.islice(rows, _CHUNK_ROWS)):
        if kind != ".jsonl":
            columns.add(chunk)


def _write_lines(
    chunks: Iterable[Sequence[JsonObject]], lines: Path, path: Path
) -> int:
    """Write rows as lines of JSON; return their number. Errors name `path`."""
    num_rows = 0
    with lines.open("w", encoding="utf-8") as file:
        for rows in chunks:  # its errors are not those of the output
            with name_path_in_errors(path):
                file.writelines(
                    json.dumps(row, ensure_ascii=False) + "\n" for row in rows
                )
            num_rows += len(rows)
        with name_path_in_errors(path):
            file.flush()
    return num_rows


class _Columns:
    """The columns of all rows so far and, for .parquet files, their types."""

    def __init__(self, kind: str) -> None:
        self.names: dict[str, None] = {}
        self.schema: Any = None
        self._is_typed = kind == ".parquet"

    def add(self, rows: Sequence[JsonObject]) -> list[JsonObject]:
        """Return more rows with a field for each of their columns."""
        flat = [_flat(row) for row in rows]
        for row in flat:
            self.names |= dict.fromkeys(row)
        if self._is_typed:
            self._add_types(
                [{name: row.get(name) for name in self.names} for row in flat]
            )
        return flat

    def _add_types(self, rows: list[JsonObject]) -> None:
        """Widen the types to those of more rows, as from whole numbers to others."""
        import pyarrow as pa

        try:
            schemas = [pa.Table.from_pylist(rows).schema]
            if self.schema is not None:
                schemas.insert(0, self.schema)
            self.schema = pa.unify_schemas(schemas, promote_options="permissive")
        except (pa.ArrowException, OverflowError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                f"A column has values of several types ({reason}); write .jsonl."
            ) from error


def _read(lines: Path, names: Iterable[str]) -> Iterator[list[JsonObject]]:
    """Yield chunks of the rows of a file, with a value or None for each column."""
    columns = list(names)
    with lines.open(encoding="utf-8") as file:
        rows = (json.loads(line) for line in file)
        full = ({name: row.get(name) for name in columns} for row in rows)
        while chunk := list(itertools.islice(full, _CHUNK_ROWS)):
            yield chunk


def _write_csv(lines: Path, columns: _Columns, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        if columns.names:
            file.write(_csv_line(columns.names))
        for rows in _read(lines, columns.names):
            file.writelines(_csv_line(row.values()) for row in rows)


def _csv_line(cells: Iterable[object]) -> str:
    """Return a line that ends in a line feed; a carriage return in a cell is quoted."""
    buffer = io.StringIO()
    values = [
        json.dumps(cell, ensure_ascii=False) if isinstance(cell, list | bool) else cell
        for cell in cells
    ]
    csv.writer(buffer, lineterminator="\r\n").writerow(values)
    return buffer.getvalue().removesuffix("\r\n") + "\n"


def _write_parquet(lines: Path, columns: _Columns, path: Path) -> None:
    """Write row groups of many chunks each, as readers of columns expect."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = columns.schema or pa.schema([])
    with pq.ParquetWriter(path, schema) as writer:
        group: list[Any] = []
        for rows in _read(lines, columns.names):
            group.append(pa.Table.from_pylist(rows, schema=schema))
            if sum(table.nbytes for table in group) >= _ROW_GROUP_BYTES:
                writer.write_table(pa.concat_tables(group))
                group = []
        if group:
            writer.write_table(pa.concat_tables(group))


def _flat(row: Mapping[str, Any], prefix: str = "") -> JsonObject:
    """Return the fields of a row and of the objects in it; {} becomes None."""
    flat: JsonObject = {}
    for name, value in row.items():
        fields = {f"{prefix}{name}": None if value == {} else value}
        if isinstance(value, dict) and value:
            fields = _flat(value, f"{prefix}{name}.")
        if twice := [field for field in fields if field in flat]:
            raise ValueError(
                f"Two fields of a row become the column {twice[0]!r:.80}; rename that "
                "column of the input, or write .jsonl."
            )
        flat |= fields
    return flat
