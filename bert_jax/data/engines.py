"""Write chunks: with several processes on this machine, or with Apache Beam.

Beam's workers call the same `write_chunk`, on the runner that its options name. They
read the input and write the output by path, so both must be on storage that all workers
share. They also need this package; Beam's options determine how they get it.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

import numpy as np
from etils import epath

from bert_jax.config import PrepareConfig
from bert_jax.data.chunks import Chunk, chunk_file, read_result, write_chunk
from bert_jax.data.documents import Documents
from bert_jax.storage.files import JsonObject
from bert_jax.terminal.processes import WorkerContext, end_with_parent, num_cores
from bert_jax.tokenization import Tokenizer


def write_chunks(
    config: PrepareConfig, files: Sequence[str], chunks: Sequence[Chunk]
) -> Generator[tuple[Chunk, JsonObject], None, None]:
    """Write the rows of `chunks`; yield each chunk and its result as it is finished.

    Raise RuntimeError if a worker process died.
    """
    num_workers = min(config.workers or num_cores(), len(chunks))
    if num_workers <= 1:
        tokenizer = Tokenizer.load(config.output)
        for chunk in chunks:
            yield chunk, write_chunk(chunk, config, files, tokenizer)
        return
    with ProcessPoolExecutor(
        num_workers, WorkerContext(), _start_worker, (config, files)
    ) as pool:
        futures = {pool.submit(_write_in_worker, chunk): chunk for chunk in chunks}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process died, perhaps because memory ran out; "
                "the same command, with fewer --workers, continues."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


_write_in_this_process: Callable[[Chunk], JsonObject]


def _start_worker(config: PrepareConfig, files: Sequence[str]) -> None:
    global _write_in_this_process  # noqa: PLW0603  set once, when the process starts
    end_with_parent()
    # There is one process per core, so tokenizer threads would only compete.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _write_in_this_process = functools.partial(
        write_chunk, config=config, files=files, tokenizer=Tokenizer.load(config.output)
    )


def _write_in_worker(chunk: Chunk) -> JsonObject:
    return _write_in_this_process(chunk)


def write_by_beam(
    config: PrepareConfig, files: Sequence[str], chunks: Sequence[Chunk]
) -> list[tuple[Chunk, JsonObject]]:
    """Write the rows of `chunks`; return each chunk and its result.

    Raise ValueError if Apache Beam is not installed, or RuntimeError if the runner
    ended without writing a chunk.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ValueError(
            "engine=beam needs Apache Beam; pip install 'bert_jax[beam]'."
        ) from error

    config, files = with_absolute_paths(config, files)
    output = epath.Path(config.output)

    class WriteChunk(beam.DoFn):
        def setup(self) -> None:
            self.tokenizer = Tokenizer.load(config.output)

        def process(self, chunk: Chunk) -> Iterator[None]:
            with chunk_file(output, chunk, "places").open("rb") as file:
                files_of, offsets, lengths = np.load(file, allow_pickle=False)
                documents = Documents(files_of, offsets, lengths)
            chunk = dataclasses.replace(chunk, documents=documents)
            write_chunk(chunk, config, files, self.tokenizer)
            return iter(())

    named = [_without_documents(output, chunk) for chunk in chunks]
    with beam.Pipeline(options=PipelineOptions(list(config.beam_options))) as pipeline:
        _ = pipeline | beam.Create(named) | beam.Reshuffle() | beam.ParDo(WriteChunk())
    results = []
    for chunk in chunks:
        result = read_result(output, chunk)
        if result is None:
            raise RuntimeError(
                f"Apache Beam ended without {chunk.name} of {output}; its machines "
                "must see the same files there. The same command continues."
            )
        results.append((chunk, result))
    return results


def with_absolute_paths(
    config: PrepareConfig, files: Sequence[str]
) -> tuple[PrepareConfig, list[str]]:
    """Return both with paths that hold in the working directories of all workers."""
    config = config.changed(output=os.path.abspath(config.output))
    return config, [*map(os.path.abspath, files)]


def _without_documents(output: epath.Path, chunk: Chunk) -> Chunk:
    """Save a chunk's document index to a file; return the chunk with an empty index.

    A Beam pipeline must be small to submit, but the index of a corpus may be large.
    """
    documents = chunk.documents
    with chunk_file(output, chunk, "places").open("wb") as file:
        np.save(file, [documents.file, documents.offset, documents.length])
    empty = documents.take(np.empty(0, np.int64))
    return dataclasses.replace(chunk, documents=empty)
