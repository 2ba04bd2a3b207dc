"""A model over the files of a corpus: one output for each, in any order, resumable."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etils import epath

from bert_jax.apps.corpus.beam_shards import write_by_beam
from bert_jax.apps.corpus.shard_job import (
    ShardJob,
    ShardResult,
    check_one,
    damaged_path,
    output_path,
    write_one,
)
from bert_jax.apps.corpus.shards import Shard, find_shards
from bert_jax.inference.output_directory import (
    INPUTS,
    locked_directory,
    require_same_job,
)
from bert_jax.inference.row_predictions import SKIP_DAMAGED
from bert_jax.inference.vector_record import JOB
from bert_jax.storage.atomic import local_output
from bert_jax.storage.files import (
    JsonObject,
    remove_temporaries,
    require_writable,
    write_json,
)
from bert_jax.terminal.messages import say, warn
from bert_jax.terminal.progress import Progress, format_duration


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
        before = require_same_job(directory, record)
        remove_temporaries(directory)  # of a run that was killed
        marks = {shard.name: _content_mark(shard) for shard in shards}
        missing = _missing(job, shards, directory, before, marks)
        kept = len(shards) - len(missing)
        if kept:
            say(f"{output}: {kept:,} of {len(shards):,} files are there already.")
        results: list[ShardResult] = []
        if engine == "local":
            results = [check_one(job, loaded, shard, directory) for shard in missing]
            _require_undamaged(results, directory, skip_damaged)
        record[INPUTS] = before.get(INPUTS, {}) | marks
        _note_inputs(job, missing, directory, record)
        if engine == "beam":
            del loaded  # the workers load their own
            results = list(write_by_beam(job, missing, directory, beam_options))
        else:
            _write_locally(job, loaded, results, directory)
        problems = _require_undamaged(results, directory, skip_damaged)
    if problems and len(problems) == len(shards):
        raise ValueError(f"None of {len(shards):,} files can be read: {problems[0]}")
    for problem in problems:
        warn(f"Left out: {problem}")
    rest = f"; {len(problems):,} were left out" if problems else ""
    return f"{output}: {len(missing) - len(problems):,} files were written{rest}."


def _note_inputs(
    job: ShardJob, missing: Sequence[Shard], directory: Path, record: JsonObject
) -> None:
    """Write the marks of the files, of which those outputs are that are there now.

    Outputs of other content are removed before: one that is there has its file's mark.
    """
    for shard in missing:
        output_path(job, directory, shard).unlink(missing_ok=True)
    write_json(record, epath.Path(directory / JOB))


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
    job: ShardJob, loaded: Any, checked: Sequence[ShardResult], directory: Path
) -> None:
    progress = FilesProgress([result.shard for result in checked])
    for result in checked:
        write_one(job, result, loaded, directory, progress.advance)
        progress.end_file()


def _content_mark(shard: Shard) -> list[int]:
    """Return a file's size in bytes and the time of its last change in ns."""
    stat = Path(shard.path).stat()
    return [stat.st_size, stat.st_mtime_ns]


def _missing(
    job: ShardJob,
    shards: Sequence[Shard],
    directory: Path,
    record: JsonObject,
    marks: dict[str, list[int]],
) -> list[Shard]:
    """Return the files that have no output, or one of another content.

    Args:
        record: that of the job, with the marks of the files whose outputs are there; in
            a directory of an older version, an output is newer than its file instead.
        marks: of the files now.
    """
    missing, noted = [], record.get(INPUTS)
    for shard in shards:
        output, mark = output_path(job, directory, shard), marks[shard.name]
        is_done = output.exists() and (
            output.stat().st_mtime_ns >= mark[1]
            if noted is None
            else noted.get(shard.name) == mark
        )
        if not is_done:
            missing.append(shard)
    return missing


def _require_undamaged(
    results: Sequence[ShardResult], directory: Path, skip_damaged: bool
) -> list[str]:
    """Return why files cannot be read; raise ValueError if they may not be left out."""
    problems = [result.problem for result in results if result.problem]
    if not problems or skip_damaged:
        return problems
    for result in results:
        damaged_path(directory, result.shard).unlink(missing_ok=True)
    several = f" So it is with {len(problems):,} of {len(results):,} files."
    hint = " If the file is damaged, pass --skip-damaged to leave such files out."
    is_named = SKIP_DAMAGED in problems[0] or (
        len(problems) == len(results) and "--" in problems[0]
    )
    raise ValueError(
        problems[0] + several * (len(problems) > 1) + hint * (not is_named)
    )
