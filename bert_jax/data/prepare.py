"""Make a dataset from text: split the corpus into chunks, write their rows to shards.

The documents of a chunk and its rows depend on the input and the seed alone, so chunks
may be written by any number of processes, in any order, and in several runs. Memory
holds the index of the documents and one chunk per process.
"""

import collections
import contextlib
import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Sequence

from etils import epath

from bert_jax.config import PrepareConfig
from bert_jax.data import unfinished
from bert_jax.data.chunks import (
    DEFAULT_LAYOUT,
    LABEL_1,
    Chunk,
    GrowingShard,
    Layout,
    dtype_of,
    plan_chunks,
)
from bert_jax.data.corpus import Corpus, read_corpus
from bert_jax.data.dataset_manifest import FORMAT_VERSION, SPLITS
from bert_jax.data.documents import count_lines, require_language
from bert_jax.data.engines import write_by_beam, write_chunks
from bert_jax.data.passes import num_passes
from bert_jax.data.records import open_dataset
from bert_jax.data.shards import dtype_to_json
from bert_jax.data.sources import UNFINISHED, Source
from bert_jax.data.structured import sources_of
from bert_jax.data.text_report import TextReport
from bert_jax.storage.atomic import local_output
from bert_jax.storage.files import JsonObject, remove_temporaries
from bert_jax.storage.manifest import MANIFEST, describe_files, write_manifest
from bert_jax.terminal.messages import say, warn
from bert_jax.tokenization import Tokenizer

_SECONDS_BETWEEN_REPORTS = 2
# Options that the manifest has in other fields, or that do not affect the dataset.
_NOT_RECORDED = (
    "input tokenizer output sequence_length pairs workers engine beam_options "
    "tfds_data_dir strict"
).split()


def prepare(
    config: PrepareConfig,
    report: Callable[[str], None] = say,
    layout: Layout = DEFAULT_LAYOUT,
) -> JsonObject:
    """Make the dataset that `config` describes; return its manifest.

    To continue an interrupted run, call this again: finished chunks are kept. If the
    same dataset is already finished, nothing is written.

    Raise FileNotFoundError if an input pattern matches no file, or there is no
    tokenizer; FileExistsError if the output holds something else, or another process
    writes it; ValueError if there are too few documents, or a source is damaged or
    invalid; or RuntimeError if a worker process died.
    """
    require_language(config.language)
    tokenizer = Tokenizer.load(config.tokenizer)
    sources = sources_of(config)
    output = local_output(config.output)
    unfinished.require_resumable(output)
    with unfinished.workspace(output) as folder:
        corpus = read_corpus(config, sources, folder, report)
        chunks = plan_chunks(config, corpus, layout)
        plan = _describe_plan(config, tokenizer, corpus, layout)
        if unfinished.is_finished(output, plan):
            report(f"{output} is already complete.")
            manifest = open_dataset(output).manifest
        else:
            unfinished.write_plan(output, plan, layout)
            tokenizer.save(output / "tokenizer")
            shards = _write_all(config, corpus.files, chunks, tokenizer, report)
            text = _report_text(config, sources, corpus, shards)
            manifest = _finish(output, plan, tokenizer, shards, text)
            for line in (*text.lines(), _summary(output, manifest)):
                report(line)
            for line in text.warnings(packed=config.pack):
                warn(f"warning: {line}")
    (output / UNFINISHED).rmtree(missing_ok=True)
    return manifest


def _describe_plan(
    config: PrepareConfig, tokenizer: Tokenizer, corpus: Corpus, layout: Layout
) -> JsonObject:
    """Return everything that the dataset's rows depend on."""
    options = dataclasses.asdict(config)
    for name in _NOT_RECORDED:
        del options[name]
    # Leave out new options at their defaults, so that older datasets still match.
    if not config.pack:
        del options["pack"]
    if layout.chunk_bytes != DEFAULT_LAYOUT.chunk_bytes:
        options["chunk_bytes"] = layout.chunk_bytes
    sources = corpus.sources
    if config.weights:
        weights = [{"weight": config.weights[number]} for number in corpus.inputs]
        sources = [s | w for s, w in zip(sources, weights, strict=True)]
    return {
        "format_version": FORMAT_VERSION,
        "row": dtype_to_json(dtype_of(config, tokenizer)),
        "sequence_length": config.sequence_length,
        "vocab_size": tokenizer.vocab_size,
        "pairs": config.pairs,
        "options": options | {"weights": list(config.weights)},
        "passes": num_passes(config),
        "tokenizer": {"fingerprint": tokenizer.fingerprint},
        "sources": sources,
    }


def _write_all(
    config: PrepareConfig,
    files: list[str],
    chunks: list[Chunk],
    tokenizer: Tokenizer,
    report: Callable[[str], None],
) -> list[GrowingShard]:
    """Write the rows of all unfinished chunks; return all shards, in order."""
    output = epath.Path(config.output)
    dtype = dtype_of(config, tokenizer)
    parts = itertools.groupby(chunks, lambda chunk: chunk.shard)
    # They hold what earlier runs finished.
    shards = {name: GrowingShard(output, list(part), dtype) for name, part in parts}
    done = {name for shard in shards.values() for name in shard.results}
    if done:
        report(f"{len(done)} of {len(chunks)} chunks are already done.")
    todo = [chunk for chunk in chunks if chunk.name not in done]
    if config.engine == "beam":
        for chunk, result in write_by_beam(config, files, todo):
            shards[chunk.shard].add(chunk, result)
        return list(shards.values())
    total = left = sum(int(chunk.documents.length.sum()) for chunk in todo)
    start = reported = time.monotonic()
    with contextlib.closing(write_chunks(config, files, todo)) as finished:
        for chunk, result in finished:
            shards[chunk.shard].add(chunk, result)
            left -= int(chunk.documents.length.sum())
            now = time.monotonic()
            if left and now - reported < _SECONDS_BETWEEN_REPORTS:
                continue
            reported, speed = now, (total - left) / (now - start)
            results = [r for shard in shards.values() for r in shard.results.values()]
            tokens = sum(result["counts"]["tokens"] for result in results)
            report(
                f"{len(results)}/{len(chunks)} chunks, {tokens / 1e6:.1f} M tokens, "
                f"{speed / 1e6:.2f} MB/s, {left / speed:.0f} s left"
            )
    return list(shards.values())


def _report_text(
    config: PrepareConfig,
    sources: Sequence[Source],
    corpus: Corpus,
    shards: Sequence[GrowingShard],
) -> TextReport:
    """Add up what happened to the text as it was read, and in each chunk."""
    text = TextReport()
    for shard in shards:
        text.update(shard.text)
    without_text = corpus.text_report.dropped["records without text"] > 0
    for kind, place in text.first.items():
        file, offset, line = map(int, place.split())
        text.first[kind] = sources[file].name
        if sources[file].holds_records or config.deduplicate:
            starts = corpus.documents.offset[corpus.documents.file == file]
            of = " of those that are kept" * (config.deduplicate or without_text)
            text.first[kind] += f", document {(starts <= offset).sum()}{of}"
        else:
            text.first[kind] += f":{count_lines(corpus.files[file], offset) + line}"
    text.update(corpus.text_report)
    return text


def _finish(
    output: epath.Path,
    plan: JsonObject,
    tokenizer: Tokenizer,
    shards: list[GrowingShard],
    text: TextReport,
) -> JsonObject:
    """Add up the chunks' results, finish the shards, and write the manifest last."""
    counts: JsonObject = collections.defaultdict(collections.Counter)
    for shard in shards:
        for result in shard.results.values():
            counts[shard.split].update(result["counts"])
    if kind := LABEL_1.get(plan["pairs"]):
        for added in counts.values():
            fraction = added[f"{kind}_pairs"] / max(added["pairs"], 1)
            added[f"{kind}_share"] = round(fraction, 6)
    try:
        text.require_sense()
        if not counts["train"]["pairs"]:
            raise ValueError(
                "the text gives no pair of sentences; documents need two sentences "
                "with words of the vocabulary, or choose --pairs none."
            )
    except ValueError as error:
        for shard in shards:
            (output / shard.name).unlink(missing_ok=True)
        (output / "tokenizer").rmtree()
        (output / UNFINISHED).rmtree()
        with contextlib.suppress(OSError):  # it may hold other files
            os.rmdir(output)
        raise ValueError(f"output={output}: {error}") from error
    names = [f"tokenizer/{name}" for name in tokenizer.files]
    manifest = plan | {
        "tokenizer": plan["tokenizer"] | {"files": describe_files(output, names)},
        "counts": {split: dict(added) for split, added in counts.items()},
        **text.as_manifest(),
        "shards": [shard.finish() for shard in shards],
    }
    remove_temporaries(output, MANIFEST)  # of a run killed just here
    write_manifest(manifest, output)
    return manifest


def _summary(output: epath.Path, manifest: JsonObject) -> str:
    train = manifest["counts"]["train"]
    num_rows = dict.fromkeys(SPLITS, 0)
    for shard in manifest["shards"]:
        num_rows[shard["split"]] += shard["rows"]
    tokens = train["tokens"]
    details = f"{train['padding'] / (tokens + train['padding']):.1%} padding"
    if (unpacked := train.get("padding_unpacked")) is not None:
        details += f" ({unpacked / (tokens + unpacked):.1%} unpacked)"
    if kind := LABEL_1.get(manifest["pairs"]):
        details += f", {train[f'{kind}_share']:.1%} {kind} pairs"
    return (
        f"{output}: {num_rows['train']} rows for training, "
        f"{num_rows['validation']} for validation; {tokens / 1e6:.1f} M tokens, "
        f"{details}."
    )
