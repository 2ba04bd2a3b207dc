"""The corpus in chunks: which documents go together, and the rows each chunk becomes.

What a chunk holds depends on the input and the seed alone. Random segments come from
the same chunk, so the shuffle of the whole corpus is what lets them come from anywhere.
The rows of many chunks, one after another, are a shard.
"""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Int32, Int64, Shaped

from bert_jax.config import PrepareConfig
from bert_jax.data.corpus import Corpus
from bert_jax.data.dataset_manifest import SPLITS
from bert_jax.data.documents import Documents, read_text, split_sentences
from bert_jax.data.packing import max_pairs_per_row, pack, pack_pairs
from bert_jax.data.pairs import Pairs, make_pairs
from bert_jax.data.passes import held_out, passes, shuffle
from bert_jax.data.records import as_bytes
from bert_jax.data.shards import row_dtype, shard_name
from bert_jax.storage.files import atomic_write, write_json
from bert_jax.tokenization import Tokenizer

UNFINISHED = "unfinished"
"""Subdirectory of an output that is not finished: its plan, the chunks done so far."""

LABEL_1 = {"nsp": "random", "sop": "swapped"}
"""What pairs with the label 1 are."""

_CHARACTERS_A_CALL = 1 << 17


@dataclasses.dataclass(frozen=True)
class Layout:
    """How much text goes into a chunk, and into a shard."""

    chunk_bytes: int = 1 << 22
    """Some 200 chapters to draw random segments from: other rows with another size."""
    shard_bytes: int = 1 << 31
    """Some 1 GB of rows; the same rows whatever the size. A process that trains holds
    each shard open."""


DEFAULT_LAYOUT = Layout()


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Documents whose rows are written together."""

    name: str
    split: str
    shard: str
    """The name of the file that its rows come to."""
    seed: tuple[int, ...]
    documents: Documents


def plan_chunks(
    config: PrepareConfig, corpus: Corpus, layout: Layout = DEFAULT_LAYOUT
) -> list[Chunk]:
    """The chunks of both splits, from shuffles of the whole corpus.

    The training documents are gone through in passes, each with a shuffle and chunks of
    its own, so that no chunk holds a document twice. Validation documents come once.

    Raises:
        ValueError: there are too few documents.
    """
    where, documents = " ".join(config.input), corpus.documents
    if not len(documents):
        raise ValueError(f"input {where} holds no text; name files that do.")
    if len(documents) == 1 and config.pairs == "nsp":
        raise ValueError(
            f"input {where} is a single document, but next sentence prediction needs "
            "two or more; part documents by a blank line, or choose other --pairs."
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
            for part in cut(order, documents.length, layout.chunk_bytes)
        ]
        sizes = np.array([documents.length[part].sum() for part in parts], np.int64)
        shards = share_among_shards(sizes, layout.shard_bytes).tolist()
        count = shards[-1] + 1 if shards else 0
        chunks += [
            Chunk(
                f"{split}-{number:06d}",
                split,
                shard_name(split, shard, count),
                (config.seed, split_number, number),
                documents.take(part),
            )
            for number, (part, shard) in enumerate(zip(parts, shards, strict=True))
        ]
    return chunks


def cut(
    order: Int64[np.ndarray, " N"], length: Int64[np.ndarray, " M"], chunk_bytes: int
) -> list[Int64[np.ndarray, " _"]]:
    """Cut documents into chunks of so much text and at least two documents."""
    ends, start, size = [], 0, 0
    for number, document in enumerate(order, 1):
        size += length[document]
        if size >= chunk_bytes and number - start >= 2:
            ends.append(number)
            start, size = number, 0
    # What is left joins the chunk before it, unless it makes a decent one.
    if ends and (len(order) - start < 2 or size < chunk_bytes // 2):
        ends.pop()
    return np.split(order, ends) if len(order) else []


def share_among_shards(
    sizes: Int64[np.ndarray, " N"], shard_bytes: int
) -> Int64[np.ndarray, " N"]:
    """The number of the shard that each chunk goes to, in order, none left out.

    Shards are of even size, as near to `shard_bytes` of text as they can be.
    """
    total = int(sizes.sum())
    count = max(1, round(total / shard_bytes))
    twice_middle = 2 * np.cumsum(sizes) - sizes
    places = twice_middle * count // max(2 * total, 1)
    _, numbers = np.unique(places, return_inverse=True)
    return numbers


def dtype_of(config: PrepareConfig, tokenizer: Tokenizer) -> np.dtype[np.void]:
    """The dtype of the dataset's rows."""
    most = max_pairs_per_row(config.sequence_length) if config.pack else 1
    return row_dtype(config.sequence_length, tokenizer.vocab_size, most)


def write_chunk(
    chunk: Chunk, config: PrepareConfig, files: Sequence[str], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Write a chunk's rows, and beside them what is to be said of them."""
    tokens, bounds, counts, dropped = _tokenize(chunk, config, files, tokenizer)
    rng = np.random.default_rng(chunk.seed)
    pairs = make_pairs(
        bounds,
        config.sequence_length,
        config.short_sequence_probability,
        rng,
        config.pairs,
    )
    dtype = dtype_of(config, tokenizer)
    ids = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
    rows = pack(tokens, pairs, dtype, *ids)
    if config.pack:
        rows = pack_pairs(rows, dtype, tokenizer.pad_id)
    output = epath.Path(config.output)
    content = as_bytes(rows)
    atomic_write(rows_path(output, chunk), content)
    result = {
        "rows": len(rows),
        "sha256": hashlib.sha256(content).hexdigest(),
        "counts": counts | _count(config, pairs, rows),
        "dropped": dropped | pairs.dropped,
    }
    write_json(result, _result_path(output, chunk))
    return result


def rows_path(output: epath.Path, chunk: Chunk) -> epath.Path:
    """Where a chunk's rows lie until they are in their shard."""
    return output / UNFINISHED / f"{chunk.name}.rows"


def _result_path(output: epath.Path, chunk: Chunk) -> epath.Path:
    return output / UNFINISHED / f"{chunk.name}.json"


def _count(
    config: PrepareConfig, pairs: Pairs, rows: Shaped[np.ndarray, " N"]
) -> dict[str, int]:
    """How much a shard holds; of a packed one also what it would be without packing."""
    counts = {"pairs": len(pairs.label)}
    if config.pairs != "none":
        counts[f"{LABEL_1[config.pairs]}_pairs"] = int(pairs.label.sum())
    # Pairs lie one after another, so where the last one ends all tokens do.
    tokens = counts["tokens"] = int(rows["end"].max(axis=1).sum(dtype=np.int64))
    counts["padding"] = rows["tokens"].size - tokens
    if config.pack:
        in_own_rows = len(pairs.label) * config.sequence_length
        counts["padding_unpacked"] = in_own_rows - tokens
    return counts


def _tokenize(
    chunk: Chunk, config: PrepareConfig, files: Sequence[str], tokenizer: Tokenizer
) -> tuple[Int32[np.ndarray, " M"], list[list[int]], dict[str, int], dict[str, int]]:
    """A chunk's tokens, the bounds of each document's sentences, counts, what is lost.

    Raises:
        ValueError: the tokenizer gave an id beyond its vocabulary.
    """
    pieces: list[Int32[np.ndarray, " _"]] = []
    documents: list[list[int]] = []
    dropped: collections.Counter[str] = collections.Counter()
    end = 0
    places = chunk.documents
    for file, offset, length in zip(
        places.file, places.offset, places.length, strict=True
    ):
        text, undecodable = read_text(files[file], int(offset), int(length))
        dropped["undecodable bytes"] += undecodable
        sentences = split_sentences(text, config.sentences, config.language)
        bounds = [end]
        for called in _calls(sentences):
            for ids in tokenizer.encode_batch(called):
                if ids:
                    pieces.append(np.array(ids, np.int32))
                    end += len(ids)
                    bounds.append(end)
        dropped["sentences without a token"] += len(sentences) - len(bounds) + 1
        if len(bounds) > 1:
            documents.append(bounds)
        else:
            dropped["documents without a token"] += 1
    tokens = np.concatenate(pieces or [np.empty(0, np.int32)])
    if len(tokens) and tokens.max() >= tokenizer.vocab_size:
        raise ValueError(
            f"the tokenizer gave id {tokens.max()}, beyond its {tokenizer.vocab_size}."
        )
    sentences_kept = sum(len(bounds) - 1 for bounds in documents)
    counts = {"documents": len(documents), "sentences": sentences_kept}
    return tokens, documents, counts, {k: n for k, n in dropped.items() if n}


def _calls(sentences: Sequence[str]) -> Iterator[Sequence[str]]:
    """The sentences, by as many as are tokenized at once: tokens take much memory."""
    start = size = 0
    for number, sentence in enumerate(sentences, 1):
        size += len(sentence)
        if size >= _CHARACTERS_A_CALL or number == len(sentences):
            yield sentences[start:number]
            start, size = number, 0


def noted_result(output: epath.Path, chunk: Chunk) -> dict[str, Any] | None:
    """What an earlier run noted of this chunk; None if that cannot be read."""
    try:
        result = json.loads(_result_path(output, chunk).read_text())
        rows, sha256 = result["rows"], result["sha256"]
        counts = [*result["counts"].values(), *result["dropped"].values()]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    except (AttributeError, RecursionError):
        return None
    numbers = all(type(number) is int and number >= 0 for number in [rows, *counts])
    return result if numbers and isinstance(sha256, str) else None


def read_rows(
    output: epath.Path, chunk: Chunk, result: dict[str, Any], row_bytes: int
) -> bytes | None:
    """The rows of a chunk, before they are in their shard; None if they are damaged."""
    path = rows_path(output, chunk)
    try:
        if path.stat().length != result["rows"] * row_bytes:
            return None
        content = path.read_bytes()
    except OSError:
        return None
    is_whole = hashlib.sha256(content).hexdigest() == result["sha256"]
    return content if is_whole else None
