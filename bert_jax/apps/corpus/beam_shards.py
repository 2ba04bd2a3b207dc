"""A model over the files of a corpus by Apache Beam, on the runner of its options.

Its workers read and write by path, so that both must be on storage that all of them
share. They also need this package; Beam's options determine how they get it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.apps.corpus.shard_job import (
    ShardJob,
    ShardResult,
    check_one,
    damaged_path,
    output_path,
    write_one,
)
from bert_jax.apps.corpus.shards import Shard, with_absolute_path
from bert_jax.terminal.messages import say


def write_by_beam(
    job: ShardJob, shards: Sequence[Shard], directory: Path, options: Sequence[str]
) -> Iterator[ShardResult]:
    """Write the outputs, and yield what became of each file, after all are done.

    Each worker loads the model once, by Beam's RunInference.

    Raises:
        ValueError: Apache Beam is not installed.
        RuntimeError: the runner ended without an output.
    """
    try:
        import apache_beam as beam
        from apache_beam.ml.inference.base import ModelHandler, RunInference
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ValueError(
            "engine=beam needs Apache Beam; pip install 'bert_jax[beam]'."
        ) from error

    class Handler(ModelHandler[Shard, ShardResult, Any]):
        """Computes the output of a file: a batch of one element."""

        def load_model(self) -> Any:
            return job.load()

        def run_inference(
            self, batch: Sequence[Shard], model: Any, inference_args: Any = None
        ) -> Iterator[ShardResult]:
            del inference_args
            for shard in batch:
                checked = check_one(job, model, shard, directory)
                yield write_one(job, checked, model, directory)

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
    for shard in shards:
        yield _result(job, shard, directory)


def _begin(shards: Sequence[Shard], directory: Path) -> None:
    """Remove what an earlier run said of the files; say where the outputs appear."""
    for shard in shards:
        damaged_path(directory, shard).unlink(missing_ok=True)
    say(
        f"{len(shards):,} files by Apache Beam; the output of each appears in "
        f"{directory} when it is complete."
    )


def _result(job: ShardJob, shard: Shard, directory: Path) -> ShardResult:
    """Return what a worker wrote of a file."""
    if output_path(job, directory, shard).exists():
        return ShardResult(shard)
    path = damaged_path(directory, shard)
    if path.exists():
        return ShardResult(shard, problem=path.read_text().strip())
    raise RuntimeError(
        f"Apache Beam ended without the output of {shard.path}; its machines "
        f"must see the same files in {directory}. The same command continues."
    )
