"""Split the corpus into chunks of documents, and write the rows of each to its shard.

The content of a chunk depends on the input and the seed alone. The random segments of
a pair come from the same chunk; because the whole corpus is shuffled first, they may be
from any source.

A chunk's rows are first written to their own file, so chunks may finish in any order.
The file is deleted once the rows are in the shard and on disk. After an interruption,
the sha256 of the chunks determines how many of them the shard already holds.
"""

import collections
import dataclasses
import hashlib
import os
from collections.abc import Sequence

import numpy as np
from etils import epath
from jaxtyping import Int64, Shaped

from bert_jax.config import PrepareConfig
from bert_jax.data.chunk_tokens import read_tokens
from bert_jax.data.corpus import Corpus
from bert_jax.data.dataset_manifest import SPLITS
from bert_jax.data.documents import Documents
from bert_jax.data.packing import build_rows, max_pairs_per_row, pack_pairs
from bert_jax.data.pairs import PairSpans, make_pairs
from bert_jax.data.passes import held_out, passes, shuffle
from bert_jax.data.shards import row_dtype, shard_header, shard_name
from bert_jax.data.sources import UNFINISHED
from bert_jax.data.text_report import CUT, PADDING, RANDOM, TextReport
from bert_jax.storage.files import (
    JsonObject,
    atomic_write,
    file_size,
    name_path_in_errors,
    read_json,
    write_json,
)
from bert_jax.storage.manifest import describe_files
from bert_jax.tokenization import Tokenizer

LABEL_1 = {"nsp": "random", "sop": "swapped"}
"""The name of pairs with label 1, for each pair objective that has them."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """The size of chunks and shards, in bytes of text."""

    chunk_bytes: int = 1 << 22
    """About 200 chapters to draw random segments from; the rows depend on this size."""
    shard_bytes: int = 1 << 31
    """About 1 GB of rows; the rows do not depend on this size. Training keeps each
    shard open."""


DEFAULT_LAYOUT = Layout()


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Documents whose rows are written together, and the shard that they go to."""

    name: str
    split: str
    shard: str
    """The file name of the shard."""
    seed: tuple[int, ...]
    documents: Documents


def plan_chunks(
    config: PrepareConfig, corpus: Corpus, layout: Layout = DEFAULT_LAYOUT
) -> list[Chunk]:
    """Return the chunks of both splits, from shuffles of the whole corpus.

    Training makes one or more passes over its documents. Each pass has its own shuffle
    and its own chunks, so no chunk holds a document twice. Validation makes one pass.
    Raise ValueError if there are too few documents.
    """
    where, documents = " ".join(config.input), corpus.documents
    if not len(documents):
        raise ValueError(f"input {where} holds no text; name files that do.")
    if len(documents) == 1 and config.pairs == "nsp":
        raise ValueError(
            f"input {where} is a single document{corpus.without_copies}, but next "
            "sentence prediction needs two or more; separate documents by a blank "
            "line, or choose other --pairs."
        )
    for_validation = held_out(config, corpus)
    orders = {
        "train": passes(config, corpus, ~for_validation),
        "validation": [shuffle(config, 0, for_validation)],
    }
    chunks = []
    for split_number, split in enumerate(SPLITS):
        parts = [
            part
            for order in orders[split]
            for part in split_into_chunks(order, documents.length, layout.chunk_bytes)
        ]
        sizes = np.array([documents.length[part].sum() for part in parts], np.int64)
        shards = assign_shards(sizes, layout.shard_bytes).tolist()
        num_shards = shards[-1] + 1 if shards else 0
        for number, (part, shard) in enumerate(zip(parts, shards, strict=True)):
            name, seed = f"{split}-{number:06d}", (config.seed, split_number, number)
            file_name = shard_name(split, shard, num_shards)
            chunks.append(Chunk(name, split, file_name, seed, documents.take(part)))
    return chunks


def split_into_chunks(
    order: Int64[np.ndarray, " N"], length: Int64[np.ndarray, " M"], chunk_bytes: int
) -> list[Int64[np.ndarray, " _"]]:
    """Split documents into chunks of about `chunk_bytes` and at least two documents."""
    ends, start, size = [], 0, 0
    for number, document in enumerate(order, 1):
        size += length[document]
        if size >= chunk_bytes and number - start >= 2:
            ends.append(number)
            start, size = number, 0
    # A remainder of one document, or of less than half a chunk, joins the last chunk.
    if ends and (len(order) - start < 2 or size < chunk_bytes // 2):
        ends.pop()
    return np.split(order, ends) if len(order) else []


def assign_shards(
    sizes: Int64[np.ndarray, " N"], shard_bytes: int
) -> Int64[np.ndarray, " N"]:
    """Return the shard number of each chunk: ascending, without gaps.

    Shards have about equal sizes, as close to `shard_bytes` of text as possible.
    """
    total = int(sizes.sum())
    num_shards = max(1, round(total / shard_bytes))
    # A chunk goes to the shard that holds the middle of its text; empty shards vanish.
    twice_middle = 2 * np.cumsum(sizes) - sizes
    shards = twice_middle * num_shards // max(2 * total, 1)
    return np.unique(shards, return_inverse=True)[1]


def dtype_of(config: PrepareConfig, tokenizer: Tokenizer) -> np.dtype[np.void]:
    max_pairs = max_pairs_per_row(config.sequence_length) if config.pack else 1
    return row_dtype(config.sequence_length, tokenizer.vocab_size, max_pairs)


def write_chunk(
    chunk: Chunk, config: PrepareConfig, files: Sequence[str], tokenizer: Tokenizer
) -> JsonObject:
    """Write a chunk's rows and, beside them, its result; return the result.

    The result holds the number of rows, their sha256, and counts for the manifest.
    """
    tokens, bounds, report = read_tokens(chunk.documents, config, files, tokenizer)
    rng, short = np.random.default_rng(chunk.seed), config.short_sequence_probability
    pairs = make_pairs(bounds, config.sequence_length, short, rng, config.pairs)
    width = pairs.longest if config.pack else config.sequence_length
    dtype, pad_id = row_dtype(width, tokenizer.vocab_size), tokenizer.pad_id
    rows = build_rows(tokens, pairs, dtype, tokenizer.cls_id, tokenizer.sep_id, pad_id)
    if config.pack:
        rows = pack_pairs(rows, dtype_of(config, tokenizer), pad_id)
    output = epath.Path(config.output)
    content = rows.view(np.uint8).data
    atomic_write(chunk_file(output, chunk, "rows"), content)
    counts = _count(config, pairs, rows)
    report.dropped.update(pairs.dropped)
    report.text["pairs"] = counts["pairs"]
    report.text[RANDOM] = counts.get("random_pairs", 0)
    report.text[PADDING] = counts["padding"]
    report.text["positions"] = counts["tokens"] + counts["padding"]
    report.text[CUT] = len(tokens) - pairs.num_covered(len(tokens))
    sizes = {
        "documents": report.document_tokens.total(),
        "sentences": report.sentence_tokens.total(),
    }
    result = {
        "rows": len(rows),
        "sha256": hashlib.sha256(content).hexdigest(),
        "counts": sizes | counts,
        "text": report.as_json(),
    }
    write_json(result, chunk_file(output, chunk, "json"))
    return result


def chunk_file(output: epath.Path, chunk: Chunk, suffix: str) -> epath.Path:
    """Return a file of a chunk: its "rows", until the shard has them, or its "json"."""
    return output / UNFINISHED / f"{chunk.name}.{suffix}"


def _count(
    config: PrepareConfig, pairs: PairSpans, rows: Shaped[np.ndarray, " N"]
) -> dict[str, int]:
    """Return the counts of a chunk; if packed, also the padding without packing."""
    counts = {"pairs": len(pairs.label)}
    if config.pairs != "none":
        counts[f"{LABEL_1[config.pairs]}_pairs"] = int(pairs.label.sum())
    # Pairs are contiguous from position 0, so a row's last `end` counts its tokens.
    tokens = counts["tokens"] = int(rows["end"].max(axis=1).sum(dtype=np.int64))
    counts["padding"] = rows["tokens"].size - tokens
    if config.pack:
        unpacked = len(pairs.label) * config.sequence_length
        counts["padding_unpacked"] = unpacked - tokens
    return counts


def read_result(output: epath.Path, chunk: Chunk) -> JsonObject | None:
    """Return the result that `write_chunk` saved; None if there is no valid one."""
    try:
        result = read_json(chunk_file(output, chunk, "json"), "")
        rows, sha256 = result["rows"], result["sha256"]
        counts = [rows, *result["counts"].values()]
        TextReport.from_json(result["text"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    valid = all(type(count) is int and count >= 0 for count in counts)
    return result if valid and isinstance(sha256, str) else None


def read_rows(
    path: epath.Path, result: JsonObject, row_bytes: int, offset: int = 0
) -> bytes | None:
    """Return the bytes of a chunk's rows, at `offset` of their own file or a shard.

    Return None if they are not there, or are damaged.
    """
    size = result["rows"] * row_bytes
    try:
        if file_size(path) < offset + size:
            return None
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read(size)
    except OSError:
        return None
    verified = hashlib.sha256(content).hexdigest() == result["sha256"]
    return content if verified else None


class GrowingShard:
    """A shard and the chunks that belong in it."""

    def __init__(
        self, output: epath.Path, chunks: Sequence[Chunk], dtype: np.dtype[np.void]
    ) -> None:
        """Verify and append the chunks that earlier runs finished."""
        self.name, self.split = chunks[0].shard, chunks[0].split
        self.results: dict[str, JsonObject] = {}
        """The result of each finished chunk, by its name."""
        self.text = TextReport()
        """What happened to the text of the finished chunks."""
        self._output, self._dtype, self._path = output, dtype, output / self.name
        self._waiting = collections.deque(chunks)
        self._rows = 0
        for chunk in chunks:
            if (result := read_result(output, chunk)) is None:
                continue
            is_next, size = chunk is self._waiting[0], dtype.itemsize
            if is_next and read_rows(self._path, result, size, self._end) is not None:
                self._waiting.popleft()
                self._rows += result["rows"]
            elif read_rows(chunk_file(output, chunk, "rows"), result, size) is None:
                continue
            self.add(chunk, result)

    @property
    def _end(self) -> int:
        """The file offset at which the shard's rows end."""
        header = len(shard_header(self._dtype, 0))
        return header + self._rows * self._dtype.itemsize

    def add(self, chunk: Chunk, result: JsonObject) -> None:
        """Record a finished chunk, and append rows while the next chunk is finished."""
        self.text.update(TextReport.from_json(result["text"]))
        self.results[chunk.name] = {**result, "text": None}  # added up: save memory
        while self._waiting and self._waiting[0].name in self.results:
            chunk = self._waiting.popleft()
            result = self.results[chunk.name]
            path = chunk_file(self._output, chunk, "rows")
            content = read_rows(path, result, self._dtype.itemsize)
            if content is None:
                raise RuntimeError(
                    f"{path} is not what was written there; the same command makes it "
                    "again. Check the disk if this happens often."
                )
            self._write(content, self._end)
            self._rows += result["rows"]
            path.unlink()

    def _write(self, content: bytes, offset: int) -> None:
        # A shard that lost its rows is not made again: zeros would stand for them.
        mode = "r+b" if self._rows or self._path.exists() else "xb"
        with name_path_in_errors(self._path), open(self._path, mode) as file:
            # Remove rows that an interrupted run appended only in part. In a new file,
            # zeros stand for the header until all rows are there.
            file.truncate(self._end)
            file.seek(offset)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def finish(self) -> JsonObject:
        """Write the header, with the number of rows; return the manifest entry."""
        assert not self._waiting
        self._write(shard_header(self._dtype, self._rows), 0)
        (entry,) = describe_files(self._output, [self.name])
        return entry | {"split": self.split, "rows": self._rows}
