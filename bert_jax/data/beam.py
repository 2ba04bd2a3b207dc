"""Chunks written by Apache Beam, on the runner that its options name.

The runner's machines run the same `write_chunk` as local processes do. They read the
input and write the output where it is, so both must be in one place for all of them,
and they need this package: Beam's options say how it gets there.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from etils import epath

from bert_jax.config import PrepareConfig
from bert_jax.data.chunks import UNFINISHED, Chunk, noted_result, write_chunk
from bert_jax.data.documents import Documents
from bert_jax.tokenization import Tokenizer


def write_by_beam(
    config: PrepareConfig, files: Sequence[str], chunks: Sequence[Chunk]
) -> dict[str, dict[str, Any]]:
    """Write the rows of `chunks`; what is to be said of each, by its name.

    Raises:
        ValueError: Apache Beam is not installed.
        RuntimeError: the runner ended without having written a chunk.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ValueError(
            "engine=beam needs Apache Beam; pip install 'bert_jax[beam]'."
        ) from error

    class WriteChunk(beam.DoFn):
        def setup(self) -> None:
            self.tokenizer = Tokenizer.load(config.output)

        def process(self, chunk: Chunk) -> Iterator[None]:
            with _places(config, chunk).open("rb") as file:
                documents = Documents(*np.load(file, allow_pickle=False))
            whole = dataclasses.replace(chunk, documents=documents)
            write_chunk(whole, config, files, self.tokenizer)
            return iter(())

    output = epath.Path(config.output)
    named = [_put_aside(config, chunk) for chunk in chunks]
    with beam.Pipeline(options=PipelineOptions(list(config.beam_options))) as pipeline:
        _ = pipeline | beam.Create(named) | beam.Reshuffle() | beam.ParDo(WriteChunk())
    results = {chunk.name: noted_result(output, chunk) for chunk in chunks}
    missing = [name for name, result in results.items() if result is None]
    if missing:
        raise RuntimeError(
            f"Apache Beam ended without {missing[0]} of {output}; its machines must "
            "see the same files there. The same command continues."
        )
    return {name: result for name, result in results.items() if result is not None}


def _put_aside(config: PrepareConfig, chunk: Chunk) -> Chunk:
    """Write where a chunk's documents lie; the chunk without them.

    A runner's plan must be small, and the index of a corpus may not be.
    """
    documents = chunk.documents
    with _places(config, chunk).open("wb") as file:
        np.save(file, [documents.file, documents.offset, documents.length])
    nothing = documents.take(np.empty(0, np.int64))
    return dataclasses.replace(chunk, documents=nothing)


def _places(config: PrepareConfig, chunk: Chunk) -> epath.Path:
    """Where a chunk's part of the index is kept for whoever writes its rows."""
    return epath.Path(config.output) / UNFINISHED / f"{chunk.name}.places"
