"""The shards of a corpus: files of rows, compressed or not."""

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path

from bert_jax.data.sources import find_sources
from bert_jax.tables.lines import suffix_of

_SUFFIXES = re.compile(
    r"(\.(jsonl|ndjson|parquet|csv|tsv|txt))?(\.(gz|zst))?$", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of a corpus."""

    name: str
    """Its file name without suffixes, which the outputs have too."""
    path: str


def find_shards(inputs: Sequence[str], output: Path) -> list[Shard]:
    """Return the files that paths and patterns name, sorted by path.

    Args:
        output: the directory of the outputs; files in it are left out.

    Raises:
        FileNotFoundError: an input matches no file.
        ValueError: a file is of a kind that cannot be read, or two have one name.
    """
    shards: dict[str, Shard] = {}
    for source in find_sources(inputs, str(output)):
        path = source.path
        if source.kind in ("tfds", "documentation"):
            raise ValueError(f"input {path!r} is not a file; name files of rows.")
        if suffix_of(path) == ".json":
            raise ValueError(
                f"input {path!r} is one JSON value; write an object a line, as .jsonl."
            )
        base = source.name.rpartition("/")[2]
        name = _SUFFIXES.sub("", base) or base
        if name in shards:
            raise ValueError(
                f"{shards[name].path} and {path} would both be written as {name}; "
                "rename one of them."
            )
        shards[name] = Shard(name, path)
    return list(shards.values())


def with_absolute_path(shard: Shard) -> Shard:
    """Return a shard that another working directory finds, too."""
    return dataclasses.replace(shard, path=os.path.abspath(shard.path))
