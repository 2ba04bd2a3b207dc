"""Sources → the index of their documents, in plain text files on this machine.

Plain text is left where it lies. Everything else is first written as plain text
("spooled"), which takes as much disk as the text until the dataset is finished.
"""

import array
import collections
import contextlib
import dataclasses
import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Int64

from bert_jax.config import PrepareConfig
from bert_jax.data.documents import Documents, find_documents
from bert_jax.data.duplicates import Deduplicator
from bert_jax.data.sources import Source, read_pieces
from bert_jax.data.structured import read_records

_SECONDS_BETWEEN_REPORTS = 2

Span = tuple[int, int]
Spans = Int64[np.ndarray, "_ 2"]
"""Start and end of each document, in bytes."""


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Every document there is, and where from."""

    documents: Documents
    """`file` numbers `files`, and `sources` and `inputs` alike."""
    files: list[str]
    sources: list[dict[str, Any]]
    """Name, size, sha256 and number of documents of each source."""
    inputs: Int64[np.ndarray, " S"]
    """The number of the entry of --input that named each source."""
    dropped: dict[str, int]
    """What was left out, and how much of it."""


@contextlib.contextmanager
def spool_folder(parent: Path) -> Iterator[Path]:
    """A folder `text` in `parent`, for `read_corpus` to make and fill.

    At the end it is removed, and with it the folders around it that were not there
    before and hold nothing else.
    """
    folder = parent / "text"
    made = [path for path in folder.parents if not path.exists()]
    shutil.rmtree(folder, ignore_errors=True)  # a killed run's
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()


def read_corpus(
    config: PrepareConfig,
    sources: Sequence[Source],
    folder: Path,
    report: Callable[[str], None],
) -> Corpus:
    """Find every document of the sources, in order; `folder` is for the spool.

    Raises:
        ValueError: a source is damaged, lacks what the configuration names, or holds
            what is not UTF-8 and `config.strict`.
    """
    places: list[Spans] = []
    files, described = [], []
    dropped: collections.Counter[str] = collections.Counter()
    deduplicator = Deduplicator(paragraphs=config.sentences == "split")
    shown = time.monotonic()
    for number, source in enumerate(sources):
        path, spans, description = _read_source(
            config, source, folder / f"{number:05d}.txt", dropped
        )
        if config.deduplicate:
            fresh = folder / f"{number:05d}.fresh.txt"
            spans = _drop_duplicates(path, spans, fresh, deduplicator, dropped)
            if not source.in_place:
                os.remove(path)
            path = str(fresh)
        places.append(spans)
        files.append(path)
        described.append(description | {"documents": len(spans)})
        if time.monotonic() - shown > _SECONDS_BETWEEN_REPORTS:
            shown = time.monotonic()
            found = sum(map(len, places))
            report(f"{number + 1}/{len(sources)} sources, {found} documents")
    start, end = np.concatenate([np.empty((0, 2), np.int64), *places]).T.copy()
    numbers = np.repeat(np.arange(len(sources)), [len(spans) for spans in places])
    return Corpus(
        Documents(numbers, start, end - start),
        files,
        described,
        np.array([source.input for source in sources], np.int64),
        {name: count for name, count in dropped.items() if count},
    )


def _read_source(
    config: PrepareConfig,
    source: Source,
    spool: Path,
    dropped: collections.Counter[str],
) -> tuple[str, Spans, dict[str, Any]]:
    """The file that holds the source's text, its documents, and what it is.

    Size and sha256 are of the file as it was given; of the text where there is none.
    """
    if source.in_place:
        spans = _gather(find_documents(read_pieces(source, config.strict)))
        return source.path, spans, _describe(source.name, source.path)
    with _create(spool) as file:
        if source.holds_records:
            found = _write_records(read_records(source, config, dropped), file)
        else:
            found = find_documents(_copy(read_pieces(source, config.strict), file))
        spans = _gather(found)
    given = source.path if os.path.isfile(source.path) else spool
    return str(spool), spans, _describe(source.name, given)


def _gather(spans: Iterable[Span]) -> Spans:
    bounds = array.array("q")  # compact, unlike lists
    for span in spans:
        bounds.extend(span)
    return np.array(bounds, np.int64).reshape(-1, 2)


def _describe(name: str, path: str | Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return {"name": name, "size": file.tell(), "sha256": digest.hexdigest()}


@contextlib.contextmanager
def _create(path: Path) -> Iterator[BinaryIO]:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(path, "wb") as file:
            yield file
    except OSError as error:
        if error.errno == errno.ENOSPC:
            error.filename = str(path)
        raise


def _copy(pieces: Iterable[bytes], file: BinaryIO) -> Iterator[bytes]:
    for piece in pieces:
        file.write(piece)
        yield piece


def _write_records(texts: Iterable[bytes], file: BinaryIO) -> Iterator[Span]:
    """Write each text; where it lies. The line breaks between are for human readers."""
    offset = 0
    for text in texts:
        file.write(text + b"\n")
        yield offset, offset + len(text)
        offset += len(text) + 1


def _drop_duplicates(
    path: str,
    spans: Spans,
    fresh: Path,
    deduplicator: Deduplicator,
    dropped: collections.Counter[str],
) -> Spans:
    """Write what is new in a file's documents to `fresh`; where each lies there."""

    def new_texts() -> Iterator[bytes]:
        with open(path, "rb") as file:
            for start, end in spans.tolist():
                file.seek(start)
                if text := deduplicator.keep(file.read(end - start), dropped):
                    yield text

    with _create(fresh) as file:
        return _gather(_write_records(new_texts(), file))
