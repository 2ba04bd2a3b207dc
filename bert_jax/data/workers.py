"""Write chunks with several processes on this machine."""

import concurrent.futures
import functools
import multiprocessing
import os
from collections.abc import Callable, Generator, Sequence

from bert_jax.config import PrepareConfig
from bert_jax.data.chunks import Chunk, write_chunk
from bert_jax.data.worker_lifetime import end_with_parent
from bert_jax.storage.files import JsonObject
from bert_jax.terminal.cores import num_cores
from bert_jax.tokenization import Tokenizer


def write_chunks(
    config: PrepareConfig, files: Sequence[str], chunks: Sequence[Chunk]
) -> Generator[tuple[Chunk, JsonObject], None, None]:
    """Write the rows of `chunks`; yield each chunk and its result as it is finished.

    Raises:
        RuntimeError: a worker process died.
    """
    num_workers = min(config.workers or num_cores(), len(chunks))
    if num_workers <= 1:
        tokenizer = Tokenizer.load(config.output)
        for chunk in chunks:
            yield chunk, write_chunk(chunk, config, files, tokenizer)
        return
    with concurrent.futures.ProcessPoolExecutor(
        num_workers,
        # A fork of a process with threads may deadlock.
        multiprocessing.get_context("spawn"),
        _start_worker,
        (config, files),
    ) as processes:
        futures = {processes.submit(_write_in_worker, c): c for c in chunks}
        try:
            for future in concurrent.futures.as_completed(futures):
                yield futures[future], future.result()
        except concurrent.futures.process.BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process died, perhaps because memory ran out; "
                "the same command, with fewer --workers, continues."
            ) from error
        finally:
            processes.shutdown(cancel_futures=True)


_write_in_this_process: Callable[[Chunk], JsonObject]


def _start_worker(config: PrepareConfig, files: Sequence[str]) -> None:
    global _write_in_this_process
    end_with_parent()
    # There is one process per core, so tokenizer threads would only compete.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _write_in_this_process = functools.partial(
        write_chunk, config=config, files=files, tokenizer=Tokenizer.load(config.output)
    )


def _write_in_worker(chunk: Chunk) -> JsonObject:
    return _write_in_this_process(chunk)
