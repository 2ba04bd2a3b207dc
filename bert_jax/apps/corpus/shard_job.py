"""What is computed of each file of a corpus, and how one output is written."""

import abc
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bert_jax.apps.corpus.shards import Shard
from bert_jax.storage.files import JsonObject, atomic_write

DAMAGED = ".damaged"
"""Suffix of a file that says why a shard was left out."""


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
        """Read the rows of a file, before any is computed.

        Raises:
            ValueError: the file is damaged, or rows of it that may not be left out.
        """

    @abc.abstractmethod
    def write(
        self, loaded: Any, shard: Shard, output: Path, advance: Callable[[int], None]
    ) -> None:
        """Write the output of a file, completely or not at all.

        Args:
            advance: called with the number of rows that are done since the last call.
        """


@dataclasses.dataclass(frozen=True)
class ShardResult:
    """What became of a file."""

    shard: Shard
    problem: str = ""
    """Why it could not be read; "": it was."""


def output_path(job: ShardJob, directory: Path, shard: Shard) -> Path:
    """Return where the output of a file is written."""
    return directory / f"{shard.name}{job.suffix}"


def damaged_path(directory: Path, shard: Shard) -> Path:
    """Return where it is said that a file could not be read."""
    return directory / f"{shard.name}{DAMAGED}"


def check_one(job: ShardJob, loaded: Any, shard: Shard, directory: Path) -> ShardResult:
    """Check the rows of a file; write why it cannot be read."""
    try:
        job.check(loaded, shard)
    except ValueError as error:
        problem = " ".join(str(error).split())
        if shard.path not in problem:
            problem = f"{shard.path}: {problem}"
        atomic_write(damaged_path(directory, shard), f"{problem}\n".encode())
        return ShardResult(shard, problem=problem)
    damaged_path(directory, shard).unlink(missing_ok=True)
    return ShardResult(shard)


def write_one(
    job: ShardJob,
    checked: ShardResult,
    loaded: Any,
    directory: Path,
    advance: Callable[[int], None] = lambda _: None,
) -> ShardResult:
    """Write the output of a file that `check_one` found readable."""
    if not checked.problem:
        shard = checked.shard
        job.write(loaded, shard, output_path(job, directory, shard), advance)
    return checked
