"""Text files → a dataset: the corpus is cut into chunks, and each becomes a shard.

What a chunk holds and how it turns out depends on the input and the seed alone, so
chunks may be written by any number of processes, in any order, in several runs.
Memory holds the index of the documents, and one chunk a process.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

from etils import epath

from bert_jax.config import PrepareConfig
from bert_jax.config_json import differences, write_json
from bert_jax.data import records
from bert_jax.data.chunks import (
    UNFINISHED,
    Chunk,
    plan_chunks,
    result_of,
    write_shard,
)
from bert_jax.data.documents import index_documents
from bert_jax.manifest import MANIFEST, describe_files, read_manifest
from bert_jax.tokenization import Tokenizer
from bert_jax.vocabulary import input_files

_SECONDS_BETWEEN_REPORTS = 2
# Options that the manifest gives elsewhere, or that change nothing in the dataset.
_NOT_RECORDED = ("input", "tokenizer", "output", "sequence_length", "workers")


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
        ValueError: too few documents.
        RuntimeError: a worker process died.
    """
    tokenizer = Tokenizer.load(config.tokenizer)
    files = input_files(config.input)
    documents, sources = index_documents(files)
    chunks = plan_chunks(config, documents, sources)
    plan = _describe_plan(config, tokenizer, sources)
    output = epath.Path(config.output)
    if _is_finished(output, plan):
        report(f"{output} is already complete.")
        manifest = records.open_dataset(output).manifest
    else:
        _begin(output, plan)
        tokenizer.save(output / "tokenizer")
        results = _write_all(config, files, chunks, report)
        manifest = _finish(output, plan, tokenizer, results)
        report(_summary(output, manifest))
    if (output / UNFINISHED).exists():
        (output / UNFINISHED).rmtree()
    return manifest


def _describe_plan(
    config: PrepareConfig, tokenizer: Tokenizer, sources: list[dict[str, Any]]
) -> dict[str, Any]:
    """Everything that the dataset's bytes depend on."""
    dtype = records.row_dtype(config.sequence_length, tokenizer.vocab_size)
    options = dataclasses.asdict(config)
    for name in _NOT_RECORDED:
        del options[name]
    return {
        "format_version": records.FORMAT_VERSION,
        "row": records.dtype_to_json(dtype),
        "sequence_length": config.sequence_length,
        "vocab_size": tokenizer.vocab_size,
        "pairs": "nsp",
        "options": options,
        "tokenizer": {"fingerprint": tokenizer.fingerprint},
        "sources": sources,
    }


def _is_finished(output: epath.Path, plan: dict[str, Any]) -> bool:
    """Whether the output is the finished dataset of this very plan."""
    if not (output / MANIFEST).exists():
        return False
    manifest = read_manifest(output)
    tokenizer = {"fingerprint": manifest.get("tokenizer", {}).get("fingerprint")}
    finished = {name: manifest.get(name) for name in plan} | {"tokenizer": tokenizer}
    _require_same(output, finished, plan)
    return True


def _begin(output: epath.Path, plan: dict[str, Any]) -> None:
    """Make the output's directory, or check that it can be continued."""
    path = output / UNFINISHED / "plan.json"
    if path.exists():
        _require_same(output, json.loads(path.read_text()), plan)
        return
    if output.exists() and (
        not output.is_dir()
        or any(entry.name != UNFINISHED for entry in output.iterdir())
    ):
        raise FileExistsError(
            f"output={output} exists and is not a dataset; choose another."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(plan, path)


def _require_same(output: epath.Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    found = [
        f"other {name}"  # too long for a line
        if isinstance(before, list)
        else f"{name.removeprefix('options.')}={before!r} before, {after!r} now"
        for name, before, after in differences(old, new)
        if name != "row"  # it follows from the others
    ]
    if found:
        raise FileExistsError(
            f"output={output} was begun differently: {'; '.join(found)}. "
            "Remove it, choose another, or repeat what began it."
        )


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
            share = added["random_pairs"] / max(added["pairs"], 1)
            counts[split] = dict(added) | {"random_share": round(share, 6)}
    if not counts["train"]["pairs"]:
        output.rmtree()
        raise ValueError(f"output={output}: the text gives no pair of sentences.")
    dropped: collections.Counter[str] = collections.Counter()
    for result in results:
        dropped.update(result["dropped"])
    names = [f"tokenizer/{path.name}" for path in (output / "tokenizer").iterdir()]
    manifest = plan | {
        "tokenizer": plan["tokenizer"] | {"files": describe_files(output, names)},
        "counts": counts,
        "dropped": dict(sorted(dropped.items())),
        "shards": [result["shard"] for result in results],
    }
    write_json(manifest, output / MANIFEST)
    return manifest


def _summary(output: epath.Path, manifest: dict[str, Any]) -> str:
    counts = manifest["counts"]
    train = counts["train"]
    cells = train["tokens"] + train["padding"]
    return (
        f"{output}: {train['pairs']} rows for training, "
        f"{counts.get('validation', {}).get('pairs', 0)} for validation; "
        f"{train['tokens'] / 1e6:.1f} M tokens, "
        f"{train['padding'] / cells:.1%} padding, "
        f"{train['random_share']:.1%} random pairs."
    )
