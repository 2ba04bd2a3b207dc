"""The shards of a corpus: files of rows, compressed or not."""

import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert_jax.config import ExamplesConfig
from bert_jax.data.sources import Source, damaged, find_sources, open_file
from bert_jax.inference.lines import lines_of, text_column
from bert_jax.tasks.tables import TableRow, delimited_rows, json_row

_SUFFIXES = re.compile(r"(\.(jsonl|parquet|csv|tsv|txt))?(\.(gz|zst))?$", re.IGNORECASE)
_DELIMITED = (".csv", ".tsv")
_ROWS_PER_BATCH = 256


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of a corpus."""

    name: str
    """Its file name without suffixes, which the outputs have too."""
    source: Source


def find_shards(inputs: Sequence[str], output: Path) -> list[Shard]:
    """Return the files that paths and patterns name, sorted by path.

    Args:
        output: the directory of the outputs; files in it are left out.

    Raises:
        FileNotFoundError: an input matches no file.
        ValueError: a file is of a kind that cannot be read, or two have one name.
    """
    shards: dict[str, Shard] = {}
    for source in find_sources(inputs):
        if Path(source.path).resolve().is_relative_to(output.resolve()):
            continue
        _require_readable(source)
        name = _SUFFIXES.sub("", source.name) or source.name
        if name in shards:
            raise ValueError(
                f"{shards[name].source.path} and {source.path} would both be written "
                f"as {name}; rename one of them."
            )
        shards[name] = Shard(name, source)
    return list(shards.values())


def _require_readable(source: Source) -> None:
    """Refuse what is no file of rows, and tables that are compressed."""
    stem = source.path.lower().removesuffix(".gz").removesuffix(".zst")
    if source.kind in ("tfds", "documentation"):
        raise ValueError(f"input {source.path!r} is not a file; name files of rows.")
    if stem.endswith(".json"):
        raise ValueError(
            f"input {source.path!r} is one JSON value; write an object a line, as "
            ".jsonl."
        )
    if source.compression and stem.endswith(_DELIMITED):
        raise ValueError(
            f"input {source.path!r} is a compressed table; unpack it, or give "
            ".jsonl.gz, .jsonl.zst or .parquet."
        )


def with_absolute_path(shard: Shard) -> Shard:
    """Return a shard that another working directory finds, too."""
    path = os.path.abspath(shard.source.path)
    return Shard(shard.name, dataclasses.replace(shard.source, path=path))


def compressed_source(path: str) -> Source | None:
    """Return a file that only `read_shard` reads: compressed, or .parquet; or None.

    Raises:
        ValueError: the file is of a kind that cannot be read.
    """
    if not Path(path).is_file():  # standard input, or a missing file
        return None
    (source,) = find_sources([path])
    if not source.compression and source.kind != "parquet":
        return None
    _require_readable(source)
    return source


def read_shard(source: Source, data: ExamplesConfig) -> Iterator[TableRow]:
    """Yield the rows of a file; lines of text are rows of one column.

    Blank lines are left out. There may be no row, and texts may be empty.

    Raises:
        ValueError: the file is damaged, or is not what its name says; the message names
            the file and the line.
    """
    if source.kind == "parquet":
        rows = _read_parquet(source)
    elif source.path.lower().endswith(_DELIMITED):
        rows = delimited_rows(Path(source.path))
    else:
        rows = _read_lines(source, text_column(data))
    for row in rows:
        yield dataclasses.replace(row, may_be_empty=True)


def _read_lines(source: Source, column: str) -> Iterator[TableRow]:
    with open_file(source) as stream:
        for number, line in enumerate(lines_of(stream.readline, source.path), 1):
            if not line.strip():
                continue
            where = f"{source.path}, line {number}"
            if source.kind == "jsonl":
                yield json_row(line, where)
            else:
                yield TableRow({column: line}, where)


def _read_parquet(source: Source) -> Iterator[TableRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source.path, page_checksum_verification=True) as file:
            names, number = file.schema_arrow.names, 0
            if len(set(names)) < len(names):
                raise damaged(source, "Parquet", "it has two columns of one name")
            for batch in file.iter_batches(_ROWS_PER_BATCH):
                for values in batch.to_pylist():
                    number += 1
                    yield TableRow(values, f"{source.path}, row {number}")
    except pa.ArrowException as error:
        raise damaged(source, "Parquet", " ".join(str(error).split())[:200]) from error
    except OSError as error:
        if error.errno is not None:  # an error of the disk, not of the content
            raise
        raise damaged(source, "Parquet", " ".join(str(error).split())[:200]) from error
