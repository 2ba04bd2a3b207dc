"""Tables of results that are written row by row: .jsonl, .csv and .parquet files."""

import contextlib
import csv
import itertools
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from bert_jax.storage.files import (
    JsonObject,
    name_path_in_errors,
    require_output_file,
)

SUFFIXES = (".jsonl", ".csv", ".parquet")
_Chunk = Sequence[JsonObject]


def write_rows(chunks: Iterable[_Chunk], path: Path) -> int:
    """Write rows, of which one chunk at a time is in memory; return their number.

    The file is written completely or not at all. In .csv and .parquet files each field
    is a column: those of the first chunk, with one for each entry of an object, as in
    `probabilities.positive`. A list is written in a .csv file as JSON.

    Raises:
        ValueError: the file name has another suffix, there is no row, or a row has
            other fields than those of the first chunk.
        OSError: the file cannot be written.
    """
    require_output_file(path, *SUFFIXES)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with name_path_in_errors(path):
            num_rows = _WRITERS[path.suffix](_without_empty(chunks), temporary)
            if not num_rows:
                raise ValueError(f"There is no row to write to {path}.")
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return num_rows


def _without_empty(chunks: Iterable[_Chunk]) -> Iterator[_Chunk]:
    return (chunk for chunk in chunks if chunk)


def _write_jsonl(chunks: Iterable[_Chunk], path: Path) -> int:
    num_rows = 0
    with path.open("w", encoding="utf-8") as file:
        for row in itertools.chain.from_iterable(chunks):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            num_rows += 1
    return num_rows


def _write_csv(chunks: Iterable[_Chunk], path: Path) -> int:
    with path.open("w", encoding="utf-8", newline="") as file:
        return _write_flat(chunks, lambda columns: _csv_writer(file, columns))


def _csv_writer(file: TextIO, columns: Sequence[str]) -> Callable[[_Chunk], None]:
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()

    def cell(value: object) -> object:
        if isinstance(value, (list, dict, bool)):
            return json.dumps(value, ensure_ascii=False)
        return value

    def write(rows: _Chunk) -> None:
        for row in rows:
            writer.writerow({name: cell(value) for name, value in row.items()})

    return write


def _write_parquet(chunks: Iterable[_Chunk], path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack:

        def open_writer(columns: Sequence[str]) -> Callable[[_Chunk], None]:
            writer: Any = None

            def write(rows: _Chunk) -> None:
                nonlocal writer
                schema = None if writer is None else writer.schema
                try:
                    table = pa.Table.from_pylist(list(rows), schema=schema)
                except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                    raise ValueError(
                        f"A column has values of several types ({error}); write .jsonl."
                    ) from error
                if writer is None:
                    writer = stack.enter_context(pq.ParquetWriter(path, table.schema))
                writer.write_table(table)

            return write

        return _write_flat(chunks, open_writer)


def _write_flat(
    chunks: Iterable[_Chunk],
    open_writer: Callable[[Sequence[str]], Callable[[_Chunk], None]],
) -> int:
    """Write rows without nested objects; return their number.

    Args:
        open_writer: takes the columns, and returns a function that writes rows of them.
    """
    num_rows, columns, write = 0, dict[str, None](), None
    for chunk in chunks:
        rows = [dict(_flat(row)) for row in chunk]
        if write is None:
            columns = dict.fromkeys(itertools.chain.from_iterable(rows))
            write = open_writer(list(columns))
        for number, row in enumerate(rows, num_rows + 1):
            if others := row.keys() - columns.keys():
                raise ValueError(
                    f"Row {number} has the field {min(others)!r:.80}, which those "
                    "before it do not have; write .jsonl."
                )
        write([{name: row.get(name) for name in columns} for row in rows])
        num_rows += len(rows)
    return num_rows


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a row, and of the objects in it."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


_WRITERS: dict[str, Callable[[Iterable[_Chunk], Path], int]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
