"""Index the documents of all sources, in plain text files on this machine.

Plain text files are indexed in place. Everything else is first written as plain text
("spooled"), which needs as much disk as the text until the dataset is finished.
"""

import collections
import dataclasses
import functools
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from etils import epath
from jaxtyping import Int64

from bert_jax.config import PrepareConfig
from bert_jax.data.documents import (
    MAX_DOCUMENT_BYTES,
    Documents,
    divide_documents,
    find_documents,
)
from bert_jax.data.duplicates import Deduplicator
from bert_jax.data.sources import Source, encoding_of_source, read_pieces
from bert_jax.data.structured import read_records
from bert_jax.data.text_report import READ, REPEATED, TextReport
from bert_jax.storage.files import JsonObject, file_size, name_path_if_disk_full
from bert_jax.storage.manifest import sha256_of

Spans = Int64[np.ndarray, "_ 2"]
"""Start and end of each document, in bytes."""
DIVIDED = f"documents of more than {MAX_DOCUMENT_BYTES >> 20} MiB were divided"
_SPAN = np.dtype((np.int64, 2))
_Known = dict[tuple[int, int], tuple[Callable[[], bytes], set[bytes]]]
"""By the number of documents and bytes: what computes the digest of the first source,
and the digests of the others."""


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The index of all documents, and their sources."""

    documents: Documents
    """`file` is an index into `files`, `sources` and `inputs`."""
    files: list[str]
    sources: list[JsonObject]
    """Name, size, sha256 and number of documents of each source."""
    inputs: Int64[np.ndarray, " S"]
    """The index of the --input entry that named each source."""
    text_report: TextReport
    """What was left out while the sources were read."""

    @property
    def without_copies(self) -> str:
        """How many duplicates are not among the documents, for messages, or ""."""
        number = self.text_report.dropped["duplicate documents"]
        return f" ({number:,} duplicates were dropped)" if number else ""


def read_corpus(
    config: PrepareConfig,
    sources: Sequence[Source],
    folder: Path,
    report: Callable[[str], None],
    report_seconds: float = 2.0,
) -> Corpus:
    """Index every document of the sources, in order; spool to `folder`.

    Report the progress every `report_seconds`. Raise ValueError if a source is damaged
    or lacks what the configuration names, or, with `config.strict`, is not UTF-8.
    """
    all_spans, files, descriptions = [], [], []
    dropped = (text_report := TextReport()).dropped
    deduplicator, reported = Deduplicator(config.sentences == "split"), time.monotonic()
    known = _Known()
    for number, source in enumerate(sources):
        spool = folder / f"{number:05d}.txt"
        path, spans = _read_source(config, source, spool, dropped)
        if num_long := int(np.count_nonzero(np.diff(spans) > MAX_DOCUMENT_BYTES)):
            text_report.add(DIVIDED, num_long, source.name)
            spans = np.fromiter(divide_documents(path, spans.tolist()), _SPAN)
        description = _describe(source, path)
        text_report.add("sources without text", int(not len(spans)), source.name)
        if config.deduplicate:
            text_report.text[READ] += len(spans)
            new = (deduplicator.keep(text, dropped) for text in _texts(path, spans))
            fresh = spool.with_suffix(".fresh.txt")
            path, spans = _spool(filter(None, new), fresh, records=True)
            spool.unlink(missing_ok=True)
        elif len(spans) and _is_repeated(path, spans, known):
            text_report.text[REPEATED] += 1
            text_report.first.setdefault(REPEATED, source.name)
        all_spans.append(spans)
        files.append(path)
        descriptions.append(description | {"documents": len(spans)})
        if time.monotonic() - reported >= report_seconds:
            reported, num_documents = time.monotonic(), sum(map(len, all_spans))
            report(f"{number + 1}/{len(sources)} sources, {num_documents} documents")
    start, end = np.concatenate([np.empty((0, 2), np.int64), *all_spans]).T.copy()
    numbers = np.repeat(np.arange(len(sources)), [*map(len, all_spans)])
    documents = Documents(numbers, start, end - start)
    inputs = np.array([source.input for source in sources], np.int64)
    return Corpus(documents, files, descriptions, inputs, text_report)


def _is_repeated(path: str, spans: Spans, known: _Known) -> bool:
    """Whether an earlier source has the same texts; those of equal size alone are read.

    The time is that of reading them, once, however many have one size.
    """
    digest = functools.cache(functools.partial(_digest, path, spans))
    size = len(spans), int(np.diff(spans).sum())
    first, others = known.setdefault(size, (digest, set()))
    if first is digest:
        return False
    is_repeated = digest() == first() or digest() in others
    others.add(digest())
    return is_repeated


def _texts(path: str, spans: Spans) -> Iterator[bytes]:
    with open(path, "rb") as file:
        for start, end in spans.tolist():
            file.seek(start)
            yield file.read(end - start)


def _digest(path: str, spans: Spans) -> bytes:
    digest = hashlib.sha256()
    for text in _texts(path, spans):
        digest.update(text + b"\n")
    return digest.digest()


def _describe(source: Source, path: str) -> JsonObject:
    """Return what identifies a source: its file, or its text if it is no file."""
    given = epath.Path(source.path if os.path.isfile(source.path) else path)
    size, sha256 = file_size(given), sha256_of(given)
    return {"name": source.name, "size": size, "sha256": sha256}


def _read_source(
    config: PrepareConfig,
    source: Source,
    spool: Path,
    dropped: collections.Counter[str],
) -> tuple[str, Spans]:
    """Return the file that holds the source's text, and its documents."""
    if source.in_place and encoding_of_source(source) == "utf-8":
        pieces = read_pieces(source, config.strict)
        return source.path, np.fromiter(find_documents(pieces), _SPAN)
    if source.holds_records:
        return _spool(read_records(source, config, dropped), spool, records=True)
    return _spool(read_pieces(source, config.strict), spool, records=False)


def _spool(pieces: Iterable[bytes], path: Path, records: bool) -> tuple[str, Spans]:
    """Write texts, or pieces of one; return the file, and the spans of documents."""
    end = b"\n" if records else b""  # line breaks are only for human readers

    def write() -> Iterator[bytes]:
        for piece in pieces:
            file.write(piece + end)
            yield piece

    def find_records(texts: Iterable[bytes]) -> Iterator[tuple[int, int]]:
        offset = 0
        for text in texts:
            yield offset, offset + len(text)
            offset += len(text) + len(end)

    find = find_records if records else find_documents
    path.parent.mkdir(parents=True, exist_ok=True)
    with name_path_if_disk_full(path), open(path, "wb") as file:
        return str(path), np.fromiter(find(write()), _SPAN)
