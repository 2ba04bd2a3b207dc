"""The shards of a corpus: files of rows, compressed or not, and what each becomes."""

import abc
import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.sources import find_sources
from bert_jax.storage.files import JsonObject, atomic_write
from bert_jax.tables.lines import suffix_of

DAMAGED = ".damaged"
"""Suffix of a file that says why a shard was left out."""
_SUFFIXES = re.compile(
    r"(\.(jsonl|ndjson|parquet|csv|tsv|txt))?(\.(gz|zst))?$", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of a corpus."""

    name: str
    """Its file name without suffixes, which the outputs have too."""
    path: str

    @property
    def mark(self) -> list[int]:
        """Its size in bytes and time of change in ns; another content has others."""
        stat = os.stat(self.path)
        return [stat.st_size, stat.st_mtime_ns]


def find_shards(inputs: Sequence[str], output: Path) -> list[Shard]:
    """Return the files that paths and patterns name, sorted by path.

    Files in the directory of the outputs are left out. Raise ValueError if a file is of
    a kind that cannot be read, or two have one name.
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


class ShardJob(abc.ABC):
    """What is computed of each file of a corpus; an object that can be pickled."""

    suffix: str
    """Of the output files."""

    @abc.abstractmethod
    def load(self) -> Any:
        """Load the model, and check that it can do this."""

    @abc.abstractmethod
    def record(self, loaded: Any) -> JsonObject:
        """Return what the outputs depend on, besides the inputs, as JSON values."""

    @abc.abstractmethod
    def with_absolute_paths(self) -> "ShardJob":
        """Return a job whose model another working directory finds, too."""

    @abc.abstractmethod
    def check(self, loaded: Any, shard: Shard) -> None:
        """Raise ValueError if a file is damaged, or rows that may not be left out."""

    @abc.abstractmethod
    def write(
        self, loaded: Any, shard: Shard, output: Path, advance: Callable[[int], None]
    ) -> None:
        """Write the output of a file, completely or not at all.

        `advance` is called with the number of rows that are done since the last call.
        """


def output_path(job: ShardJob, directory: Path, shard: Shard) -> Path:
    """Return where the output of a file is written."""
    return directory / f"{shard.name}{job.suffix}"


def damaged_path(directory: Path, shard: Shard) -> Path:
    """Return where it is said that a file could not be read."""
    return directory / f"{shard.name}{DAMAGED}"


def check_one(job: ShardJob, loaded: Any, shard: Shard, directory: Path) -> str:
    """Check the rows of a file; write and return why it cannot be read, or ""."""
    try:
        job.check(loaded, shard)
    except ValueError as error:
        problem = " ".join(str(error).split())
        if shard.path not in problem:
            problem = f"{shard.path}: {problem}"
        atomic_write(damaged_path(directory, shard), f"{problem}\n".encode())
        return problem
    damaged_path(directory, shard).unlink(missing_ok=True)
    return ""
