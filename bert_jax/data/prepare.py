"""Text → a dataset: the corpus is cut into chunks, and each becomes a shard.

What a chunk holds and how it turns out depends on the input and the seed alone, so
chunks may be written by any number of processes, in any order, in several runs.
Memory holds the index of the documents, and one chunk a process.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from etils import epath

from bert_jax.config import PrepareConfig
from bert_jax.data import records
from bert_jax.data.beam import write_by_beam
from bert_jax.data.chunks import (
    LABEL_1,
    UNFINISHED,
    Chunk,
    dtype_of,
    plan_chunks,
    result_of,
    write_shard,
)
from bert_jax.data.corpus import Corpus, read_corpus, spool_folder
from bert_jax.data.documents import require_language
from bert_jax.data.passes import num_passes
from bert_jax.data.sources import find_sources
from bert_jax.data.unfinished import begin, is_finished, require_ours
from bert_jax.manifest import describe_files, write_manifest
from bert_jax.tokenization import Tokenizer
from bert_jax.whole import local_output

_SECONDS_BETWEEN_REPORTS = 2
# Options that the manifest gives elsewhere, or that change nothing in the dataset.
_NOT_RECORDED = (
    "input tokenizer output sequence_length pairs workers engine beam_options "
    "tfds_data_dir strict"
).split()


def prepare(
    config: PrepareConfig, report: Callable[[str], None] = print
) -> dict[str, Any]:
    """Make the dataset that `config` describes; returns its manifest.

    An interrupted run is continued by the same call: shards that are whole are kept.
    A dataset that is finished and the same is left as it is. With more than one
    worker, a script must call this under `if __name__ == "__main__":`, because each
    process imports the script anew.

    Raises:
        FileNotFoundError: an input pattern matches no file; there is no tokenizer.
        FileExistsError: the output holds something else.
        ValueError: too few documents; a source that cannot be read as it should.
        RuntimeError: a worker process died.
    """
    require_language(config.language)
    tokenizer = Tokenizer.load(config.tokenizer)
    sources = find_sources(config.input)
    output = local_output(config.output)
    require_ours(output)
    with spool_folder(Path(config.output) / UNFINISHED) as folder:
        corpus = read_corpus(config, sources, folder, report)
        chunks = plan_chunks(config, corpus)
        plan = _describe_plan(config, tokenizer, corpus)
        if is_finished(output, plan):
            report(f"{output} is already complete.")
            manifest = records.open_dataset(output).manifest
        else:
            begin(output, plan)
            tokenizer.save(output / "tokenizer")
            results = _write_all(config, corpus.files, chunks, report)
            manifest = _finish(output, plan, tokenizer, results, corpus.dropped)
            report(_summary(output, manifest))
    if (output / UNFINISHED).exists():
        (output / UNFINISHED).rmtree()
    return manifest


def _describe_plan(
    config: PrepareConfig, tokenizer: Tokenizer, corpus: Corpus
) -> dict[str, Any]:
    """Everything that the dataset's bytes depend on."""
    dtype = dtype_of(config, tokenizer)
    options = dataclasses.asdict(config)
    for name in _NOT_RECORDED:
        del options[name]
    if not config.pack:
        del options["pack"]  # datasets older than the option are as they would be now
    return {
        "format_version": records.FORMAT_VERSION,
        "row": records.dtype_to_json(dtype),
        "sequence_length": config.sequence_length,
        "vocab_size": tokenizer.vocab_size,
        "pairs": config.pairs,
        "options": options | {"weights": list(config.weights)},
        "passes": num_passes(config),
        "tokenizer": {"fingerprint": tokenizer.fingerprint},
        "sources": corpus.sources,
    }


def _write_all(
    config: PrepareConfig,
    files: list[str],
    chunks: list[Chunk],
    report: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Write the shards that are not there yet; the results of all, in order."""
    output = epath.Path(config.output)
    results = {c.name: r for c in chunks if (r := result_of(output, c)) is not None}
    if results:
        report(f"{len(results)} of {len(chunks)} chunks are already done.")
    todo = [chunk for chunk in chunks if chunk.name not in results]
    if config.engine == "beam":
        results |= write_by_beam(config, files, todo)
        return [results[chunk.name] for chunk in chunks]
    total = sum(int(chunk.documents.length.sum()) for chunk in todo)
    start = shown = time.monotonic()
    size = 0
    with contextlib.closing(_map_chunks(config, files, todo)) as done:
        for chunk, result in done:
            results[chunk.name] = result
            size += int(chunk.documents.length.sum())
            now = time.monotonic()
            if now - shown < _SECONDS_BETWEEN_REPORTS and size < total:
                continue
            shown, speed = now, size / (now - start)
            tokens = sum(r["counts"]["tokens"] for r in results.values())
            report(
                f"{len(results)}/{len(chunks)} chunks, {tokens / 1e6:.1f} M tokens, "
                f"{speed / 1e6:.2f} MB/s, {(total - size) / speed:.0f} s left"
            )
    return [results[chunk.name] for chunk in chunks]


def _map_chunks(
    config: PrepareConfig, files: Sequence[str], chunks: Sequence[Chunk]
) -> Generator[tuple[Chunk, dict[str, Any]], None, None]:
    """Each chunk with the result of writing it, in the order they are done."""
    workers = min(config.workers or os.cpu_count() or 1, len(chunks))
    if workers <= 1:
        tokenizer = Tokenizer.load(config.output)
        for chunk in chunks:
            yield chunk, write_shard(chunk, config, files, tokenizer)
        return
    with concurrent.futures.ProcessPoolExecutor(
        workers,
        # A fork of a process with threads may hang.
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
                "a worker process died, perhaps for want of memory; "
                "the same command, with fewer --workers, continues."
            ) from error
        finally:
            processes.shutdown(cancel_futures=True)


_write_in_this_process: Callable[[Chunk], dict[str, Any]]


def _start_worker(config: PrepareConfig, files: Sequence[str]) -> None:
    """Set up a worker process, which ends when its parent does, however that ends."""
    global _write_in_this_process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    # There is a process for each core; threads of the library would contend for them.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _write_in_this_process = functools.partial(
        write_shard,
        config=config,
        files=files,
        tokenizer=Tokenizer.load(config.output),
    )


def _write_in_worker(chunk: Chunk) -> dict[str, Any]:
    return _write_in_this_process(chunk)


def _finish(
    output: epath.Path,
    plan: dict[str, Any],
    tokenizer: Tokenizer,
    results: list[dict[str, Any]],
    dropped_before: dict[str, int],
) -> dict[str, Any]:
    """Add up the chunks' results and write the manifest, which ends the work.

    Raises:
        ValueError: there is no pair at all.
    """
    counts: dict[str, Any] = {}
    for split in records.SPLITS:
        added: collections.Counter[str] = collections.Counter()
        for result in results:
            if result["shard"]["split"] == split:
                added.update(result["counts"])
        if added:
            counts[split] = dict(added)
        if added and (kind := LABEL_1.get(plan["pairs"])):
            share = added[f"{kind}_pairs"] / max(added["pairs"], 1)
            counts[split][f"{kind}_share"] = round(share, 6)
    if not counts["train"]["pairs"]:
        output.rmtree()
        raise ValueError(f"output={output}: the text gives no pair of sentences.")
    dropped = collections.Counter(dropped_before)
    for result in results:
        dropped.update(result["dropped"])
    names = [f"tokenizer/{path.name}" for path in (output / "tokenizer").iterdir()]
    manifest = plan | {
        "tokenizer": plan["tokenizer"] | {"files": describe_files(output, names)},
        "counts": counts,
        "dropped": dict(sorted(dropped.items())),
        "shards": [result["shard"] for result in results],
    }
    write_manifest(manifest, output)
    return manifest


def _summary(output: epath.Path, manifest: dict[str, Any]) -> str:
    train = manifest["counts"]["train"]
    number = dict.fromkeys(records.SPLITS, 0)
    for shard in manifest["shards"]:
        number[shard["split"]] += shard["rows"]
    cells = train["tokens"] + train["padding"]
    shares = [f"{train['padding'] / cells:.1%} padding"]
    if "padding_unpacked" in train:
        cells = train["tokens"] + train["padding_unpacked"]
        before = f"{train['padding_unpacked'] / cells:.1%}"
        shares[0] += f" ({before} unpacked)"
    if kind := LABEL_1.get(manifest["pairs"]):
        shares.append(f"{train[f'{kind}_share']:.1%} {kind} pairs")
    return (
        f"{output}: {number['train']} rows for training, "
        f"{number['validation']} for validation; "
        f"{train['tokens'] / 1e6:.1f} M tokens, {', '.join(shares)}."
    )
