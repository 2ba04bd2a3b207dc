"""A model over the files of a corpus: one output for each, in any order, resumable."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from etils import epath

from bert_jax.apps.corpus.shards import (
    Shard,
    ShardJob,
    check_one,
    damaged_path,
    find_shards,
    output_path,
    with_absolute_path,
)
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
    same bytes. Raise ValueError if a file is damaged, or the directory was written with
    other options, FileExistsError if another process writes there.

    Args:
        inputs: paths and patterns.
        engine: "local", one file after the other in this process, or "beam".
        skip_damaged: leave files out that cannot be read, and name them in a file of
            the suffix .damaged; else the first one ends the work.
    """
    directory = Path(local_output(output))
    shards = find_shards(inputs, directory)
    require_writable(directory)
    loaded = job.load()
    record = job.record(loaded)
    with locked_directory(directory):
        before = require_same_job(directory, record)
        remove_temporaries(directory)  # of a run that was killed
        marks = {shard.name: shard.mark for shard in shards}
        missing = _missing(job, shards, directory, before, marks)
        if kept := len(shards) - len(missing):
            say(f"{output}: {kept:,} of {len(shards):,} files are there already.")
        checked = missing if engine == "local" else []
        reasons = {one: check_one(job, loaded, one, directory) for one in checked}
        _require_undamaged(reasons, directory, skip_damaged)
        for shard in missing:  # an output that is there has its file's mark
            output_path(job, directory, shard).unlink(missing_ok=True)
        record[INPUTS] = before.get(INPUTS, {}) | marks
        write_json(record, epath.Path(directory / JOB))
        if engine == "beam":
            del loaded  # the workers load their own
            reasons = _write_by_beam(job, missing, directory, beam_options)
        else:
            _write_locally(job, loaded, reasons, directory)
        problems = _require_undamaged(reasons, directory, skip_damaged)
    if problems and len(problems) == len(shards):
        raise ValueError(f"None of {len(shards):,} files can be read: {problems[0]}")
    for problem in problems:
        warn(f"Left out: {problem}")
    rest = f"; {len(problems):,} were left out" if problems else ""
    return f"{output}: {len(missing) - len(problems):,} files were written{rest}."


class FilesProgress(Progress):
    """Rows and files that are done; the time left is estimated by the files' sizes."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        super().__init__("rows")
        self._sizes = [shard.mark[0] for shard in shards]
        self._num_files = 0

    def end_file(self) -> None:
        self._num_files += 1

    def line(self, seconds: float) -> str:
        """Return the line: 3/40 files, 3,000 rows, 310/s, 0:01:26 left."""
        files = f"{self._num_files:,}/{len(self._sizes):,} files"
        done = sum(self._sizes[: self._num_files])
        left = seconds * (sum(self._sizes) - done) / max(done, 1)
        rest = f", {format_duration(left)} left" if done else ""
        return f"{files}, {super().line(seconds)}{rest}"


def _write_locally(
    job: ShardJob, loaded: Any, reasons: Mapping[Shard, str], directory: Path
) -> None:
    progress = FilesProgress([*reasons])
    for shard, problem in reasons.items():
        if not problem:
            output = output_path(job, directory, shard)
            job.write(loaded, shard, output, progress.advance)
        progress.end_file()


def _write_by_beam(
    job: ShardJob, shards: Sequence[Shard], directory: Path, options: Sequence[str]
) -> dict[Shard, str]:
    """Write the outputs on Beam's runner; return why files cannot be read, or "".

    Each worker loads the model once, by Beam's RunInference. Workers read and write by
    path, on storage that all of them share. They also need this package; Beam's options
    determine how they get it.
    """
    try:
        import apache_beam as beam
        from apache_beam.ml.inference.base import ModelHandler, RunInference
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ValueError(
            "engine=beam needs Apache Beam; pip install 'bert_jax[beam]'."
        ) from error

    class Handler(ModelHandler[Shard, Shard, Any]):
        def load_model(self) -> Any:
            return job.load()

        def run_inference(
            self, batch: Sequence[Shard], model: Any, inference_args: Any = None
        ) -> Iterator[Shard]:
            del inference_args
            for shard in batch:
                if not check_one(job, model, shard, directory):
                    output = output_path(job, directory, shard)
                    job.write(model, shard, output, lambda _: None)
                yield shard

        def batch_elements_kwargs(self) -> dict[str, int]:
            return {"min_batch_size": 1, "max_batch_size": 1}

    # Workers have working directories of their own.
    job, directory = job.with_absolute_paths(), directory.absolute()
    shards = [with_absolute_path(shard) for shard in shards]
    if shards:
        _begin(shards, directory)
        with beam.Pipeline(options=PipelineOptions(list(options))) as pipeline:
            named = pipeline | beam.Create(list(shards)) | beam.Reshuffle()
            _ = named | RunInference(Handler())
    return {shard: _problem(job, shard, directory) for shard in shards}


def _begin(shards: Sequence[Shard], directory: Path) -> None:
    """Remove what an earlier run said of the files; say where the outputs appear."""
    for shard in shards:
        damaged_path(directory, shard).unlink(missing_ok=True)
    say(
        f"{len(shards):,} files by Apache Beam; the output of each appears in "
        f"{directory} when it is complete."
    )


def _problem(job: ShardJob, shard: Shard, directory: Path) -> str:
    """Return why a worker could not read a file, or ""."""
    if output_path(job, directory, shard).exists():
        return ""
    path = damaged_path(directory, shard)
    if path.exists():
        return path.read_text().strip()
    raise RuntimeError(
        f"Apache Beam ended without the output of {shard.path}; its machines "
        f"must see the same files in {directory}. The same command continues."
    )


def _missing(
    job: ShardJob,
    shards: Sequence[Shard],
    directory: Path,
    record: JsonObject,
    marks: dict[str, list[int]],
) -> list[Shard]:
    """Return the files that have no output, or one of another content.

    In a directory of an older version, whose record has no marks of the files, an
    output of the same content is newer than its file.
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
    reasons: Mapping[Shard, str], directory: Path, skip_damaged: bool
) -> list[str]:
    """Return why files cannot be read; raise ValueError if they may not be left out."""
    problems = [problem for problem in reasons.values() if problem]
    if not problems or skip_damaged:
        return problems
    for shard in reasons:
        damaged_path(directory, shard).unlink(missing_ok=True)
    several = f" So it is with {len(problems):,} of {len(reasons):,} files."
    hint = " If the file is damaged, pass --skip-damaged to leave such files out."
    is_named = SKIP_DAMAGED in problems[0] or (
        len(problems) == len(reasons) and "--" in problems[0]
    )
    raise ValueError(
        problems[0] + several * (len(problems) > 1) + hint * (not is_named)
    )
