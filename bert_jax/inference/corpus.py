"""A model over the files of a corpus: one output for each, in any order, resumable."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from etils import epath

from bert_jax.inference.beam_shards import write_by_beam
from bert_jax.inference.shard_job import (
    ShardJob,
    ShardResult,
    damaged_path,
    output_path,
    write_one,
)
from bert_jax.inference.shards import Shard, find_shards
from bert_jax.inference.vector_record import JOB
from bert_jax.storage.atomic import local_output
from bert_jax.storage.file_lock import lock_file
from bert_jax.storage.files import (
    JsonObject,
    read_json_object,
    remove_temporaries,
    require_writable,
    write_json,
)
from bert_jax.terminal.messages import say, warn
from bert_jax.terminal.progress import Progress, format_duration

LOCK = ".lock"
"""In the output directory while a process writes there."""


def write_shards(
    job: ShardJob,
    inputs: Sequence[str],
    output: str,
    engine: str = "local",
    beam_options: Sequence[str] = (),
    skip_damaged: bool = False,
) -> str:
    """Write an output for each file of a corpus; return a message.

    The same call again leaves what is there, and writes the rest. All engines write the
    same bytes.

    Args:
        inputs: paths and patterns.
        output: a directory.
        engine: "local", one file after the other in this process, or "beam".
        beam_options: command-line options of Apache Beam.
        skip_damaged: leave files out that cannot be read, and name them in a file of
            the suffix .damaged; else the first one ends the work.

    Raises:
        FileNotFoundError: an input matches no file.
        ValueError: a file is damaged, or the directory was written with other options.
        FileExistsError: another process writes there.
    """
    directory = Path(local_output(output))
    shards = find_shards(inputs, directory)
    require_writable(directory)
    loaded = job.load()
    record = job.record(loaded)
    with locked_directory(directory):
        require_same_job(directory, record)
        remove_temporaries(directory)  # of a run that was killed
        missing = [s for s in shards if not _is_done(s, output_path(job, directory, s))]
        kept = len(shards) - len(missing)
        if kept:
            say(f"{output}: {kept:,} of {len(shards):,} files are there already.")
        if engine == "beam":
            del loaded  # the workers load their own
            results: Iterable[ShardResult] = write_by_beam(
                job, missing, directory, beam_options
            )
        else:
            results = _write_locally(job, loaded, missing, directory)
        problems = _problems(results, skip_damaged)
        if problems and not skip_damaged:
            for shard in missing:
                damaged_path(directory, shard).unlink(missing_ok=True)
            raise ValueError(
                f"{problems[0]} If the file is damaged, pass --skip-damaged to leave "
                "such files out; the outputs that are written stay."
            )
    if problems and len(problems) == len(shards):
        raise ValueError(f"None of {len(shards):,} files can be read: {problems[0]}")
    rest = f"; {len(problems):,} were left out" if problems else ""
    return f"{output}: {len(missing) - len(problems):,} files were written{rest}."


class FilesProgress(Progress):
    """Rows and files that are done; the time left is estimated by the files' sizes."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        super().__init__("rows")
        self._sizes = [Path(shard.path).stat().st_size for shard in shards]
        self._num_files = 0

    def end_file(self) -> None:
        """Count a file that is done."""
        self._num_files += 1

    def line(self, seconds: float) -> str:
        """Return the line: 3/40 files, 3,000 rows, 310/s, 0:01:26 left."""
        files = f"{self._num_files:,}/{len(self._sizes):,} files"
        done = sum(self._sizes[: self._num_files])
        left = seconds * (sum(self._sizes) - done) / max(done, 1)
        rest = f", {format_duration(left)} left" if done else ""
        return f"{files}, {super().line(seconds)}{rest}"


def _write_locally(
    job: ShardJob, loaded: Any, shards: Sequence[Shard], directory: Path
) -> Iterator[ShardResult]:
    progress = FilesProgress(shards)
    for shard in shards:
        yield write_one(job, loaded, shard, directory, progress.advance)
        progress.end_file()


def _is_done(shard: Shard, output: Path) -> bool:
    """Whether the output of a file is there, and the file was not changed since."""
    if not output.exists():
        return False
    return output.stat().st_mtime_ns >= Path(shard.path).stat().st_mtime_ns


@contextlib.contextmanager
def locked_directory(directory: Path, option: str = "--output") -> Iterator[None]:
    """Make the directory of the outputs, and lock it while the block runs.

    If the block fails before any output, the directory is left as it was, because the
    next call may have other options.

    Args:
        option: names the directory.

    Raises:
        FileExistsError: another process writes there.
        ValueError: it is a file.
    """
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file; choose another {option}.")
    existed = directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / LOCK
    with path.open("w") as file:
        lock_file(file, directory)
        try:
            yield
        except Exception:
            if {entry.name for entry in directory.iterdir()} == {JOB, LOCK}:
                (directory / JOB).unlink()
            raise
        finally:
            path.unlink(missing_ok=True)
            if not existed:
                with contextlib.suppress(OSError):  # it is not empty
                    directory.rmdir()


def require_same_job(
    directory: Path, record: JsonObject, option: str = "--output"
) -> None:
    """Write the record of the job, or check that it is the one in the directory.

    Args:
        option: names the directory.

    Raises:
        ValueError: the directory is of another job, or holds other files.
    """
    path = epath.Path(directory / JOB)
    remove_temporaries(directory, JOB)  # of a run that was killed just here
    if path.exists():
        before = read_json_object(path, "remove the directory, and begin again")
        if before != json.loads(json.dumps(record)):
            names = [n for n in record if before.get(n) != record[n]] or ["a field"]
            raise ValueError(
                f"{directory} was written with another {', '.join(names)}; repeat the "
                f"options, or choose another {option}."
            )
        return
    if {entry.name for entry in directory.iterdir()} - {LOCK}:
        raise ValueError(
            f"{directory} exists and is not a directory of such outputs; choose "
            f"another {option}."
        )
    write_json(record, path)


def _problems(results: Iterable[ShardResult], skip_damaged: bool) -> list[str]:
    """Wait for the results; return why files could not be read.

    Args:
        skip_damaged: wait for all of them, not only until the first problem.
    """
    problems = []
    for result in results:
        if not result.problem:
            continue
        problems.append(result.problem)
        if not skip_damaged:
            break
        warn(f"Left out: {result.problem}")
    return problems
