"""Text files → an index of documents, and the sentences of each.

A document is a run of lines that are not blank. The index holds places, not text, so
that a corpus larger than memory can be shuffled as a whole.
"""

import array
import dataclasses
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Literal

import numpy as np
from jaxtyping import Int64

_PIECE = 1 << 22
_BOM = b"\xef\xbb\xbf"
# White space of ASCII, and what many editors leave: no-break and ideographic space.
_BLANK = rb"(?:[ \t\r\f\v]|\xc2\xa0|\xe3\x80\x80)*"
_BLANK_LINES = re.compile(rb"\n(?:" + _BLANK + rb"\n)+")
_ONLY_BLANK = re.compile(_BLANK)


@dataclasses.dataclass(frozen=True)
class Documents:
    """Where each document lies: its file's number, its first byte, its length."""

    file: Int64[np.ndarray, " N"]
    offset: Int64[np.ndarray, " N"]
    length: Int64[np.ndarray, " N"]

    def __len__(self) -> int:
        return len(self.file)

    def take(self, numbers: Int64[np.ndarray, " M"]) -> "Documents":
        """The documents of these numbers, in this order."""
        return Documents(self.file[numbers], self.offset[numbers], self.length[numbers])


def index_documents(files: Sequence[str]) -> tuple[Documents, list[dict[str, Any]]]:
    """Every document of the files, in order, and the name, size, sha256 of each file.

    A source's name is its base name: a dataset does not say where it was made.
    """
    numbers, bounds = array.array("q"), array.array("q")  # compact, unlike lists
    sources = []
    for number, path in enumerate(files):
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            for span in _spans(_lines_in_pieces(file, digest)):
                numbers.append(number)
                bounds.extend(span)
            size = file.tell()
        name = os.path.basename(path)
        sources.append({"name": name, "size": size, "sha256": digest.hexdigest()})
    start, end = np.array(bounds, np.int64).reshape(-1, 2).T
    return Documents(np.array(numbers, np.int64), start, end - start), sources


def _lines_in_pieces(file: BinaryIO, digest: Any) -> Iterator[bytes]:
    """The file's bytes in bounded pieces that end where a line does.

    Only a line of more than two pieces is cut inside.
    """
    while piece := file.read(_PIECE):
        piece += file.readline(_PIECE)
        digest.update(piece)
        yield piece


def _spans(pieces: Iterator[bytes]) -> Iterator[tuple[int, int]]:
    """Start and end of each document, in bytes."""
    offset = 0  # of the piece in the file
    start: int | None = None  # of the document that the last piece left open
    for piece in pieces:
        if not offset and piece.startswith(_BOM):
            offset, piece = len(_BOM), piece[len(_BOM) :]
        place = 0
        # The line break before the piece, so that a blank first line is found.
        for blank in _BLANK_LINES.finditer(b"\n" + piece):
            end = blank.start()  # in the piece, of the line before the blank ones
            if start is None and end > place:
                start = offset + place
            if start is not None:
                yield start, offset + end
            start, place = None, blank.end() - 1
        if start is None and not _ONLY_BLANK.fullmatch(piece, place):
            start = offset + place
        offset += len(piece)
    if start is not None:
        yield start, offset


def read_text(path: str, offset: int, length: int) -> tuple[str, int]:
    """A document's text, and how many U+FFFD stand for bytes that are not UTF-8."""
    with open(path, "rb") as file:
        file.seek(offset)
        content = file.read(length)
    text = content.decode("utf-8", errors="replace")
    return text, text.count("\ufffd") - content.count(b"\xef\xbf\xbd")


def split_sentences(text: str, mode: Literal["split", "lines"]) -> list[str]:
    """The sentences of a document, stripped; what is blank is left out.

    split: each line is prose and is cut by sentencex; lines: each line is a sentence.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if mode == "split":
        import sentencex

        lines = [part for line in lines for part in sentencex.segment("en", line)]
    return [sentence for line in lines if (sentence := line.strip())]
