"""Find documents in text files, and split them into sentences.

A document is a run of lines that are not blank. The index holds positions, not text, so
a corpus larger than memory can be shuffled as a whole.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Int64

from bert_jax.data.sources import BOM, PIECE_BYTES
from bert_jax.tables.lines import split_lines

# ASCII white space, no-break space and ideographic space, as many editors leave them.
# Possessive (*+): by backtracking, a failed match would try every shorter length.
_BLANK = rb"(?:[ \t\f\v]++|\xc2\xa0|\xe3\x80\x80)*+"
_BLANK_LINES = re.compile(rb"\n(?:" + _BLANK + rb"\n)+")
_ONLY_BLANK = re.compile(_BLANK)
MAX_DOCUMENT_BYTES = 1 << 22
"""A longer document is divided: in memory, one takes some twenty times its bytes."""
PART_BYTES = 1 << 18
"""The most bytes of a part of it: a long chapter, so that some can be held out."""
# Where a document is divided, the best first; the last is any character's end.
_ENDS = (
    rb"\n|\r(?=[^\n])",
    rb"[.!?]\s|\xe3\x80\x82",
    rb"\s",
    rb"(?<=.)(?=[^\x80-\xbf])",
)
MAX_CHARACTERS = 10_000
"""Characters passed to the sentence splitter at once."""
_UP_TO_BREAK = re.compile(r".*[\s。！？]", re.DOTALL)
# sentencex 1.0.32 panics at an initial, a space that is not ASCII, and a full stop.
_SPACE_BEFORE_STOP = re.compile(r"(?<!\s)\s++(?=\.)")
# ISO 639-1. The sentence splitter silently treats any other code as English.
_LANGUAGES = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu
cv cy da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi
ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks
ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl
nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl
sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve
vi vo wa wo xh yi yo za zh zu
""".split()


@dataclasses.dataclass(frozen=True)
class Documents:
    """The index of documents: the file of each, its first byte and its length."""

    file: Int64[np.ndarray, " N"]
    offset: Int64[np.ndarray, " N"]
    length: Int64[np.ndarray, " N"]

    def __len__(self) -> int:
        return len(self.file)

    def take(self, numbers: Int64[np.ndarray, " M"]) -> "Documents":
        """Return the documents with these numbers, in this order."""
        return Documents(self.file[numbers], self.offset[numbers], self.length[numbers])


def find_documents(pieces: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each document of a text, in bytes.

    A line may continue in the next piece, but CR and LF are in the same one.
    """
    offset = 0  # of the piece in the text
    start: int | None = None  # of the document that continues from the last piece
    # Prepended to a piece: a line break, so that a blank first line matches; nothing if
    # the piece starts inside a line that is not blank.
    before = b"\n"
    for piece in pieces:
        if not offset and piece.startswith(BOM):
            offset, piece = len(BOM), piece[len(BOM) :]
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b" \n").replace(b"\r", b"\n")
        place = 0
        for blank in _BLANK_LINES.finditer(before + piece):
            # The end of the line before the blank lines, as a position in the piece.
            end = blank.start() + 1 - len(before)
            if start is None and end > place:
                start = offset + place
            if start is not None:
                yield start, offset + end
            start, place = None, blank.end() - len(before)
        if start is None and not _ONLY_BLANK.fullmatch(piece, place):
            start = offset + place
        offset += len(piece)
        end = piece.rfind(b"\n")
        if before or end >= 0:  # otherwise the line that is not blank continues
            before = b"\n" if _ONLY_BLANK.fullmatch(piece, end + 1) else b""
    if start is not None:
        yield start, offset


def divide_documents(
    path: str,
    spans: Iterable[Sequence[int]],
    max_bytes: int = MAX_DOCUMENT_BYTES,
    part_bytes: int = PART_BYTES,
) -> Iterator[tuple[int, int]]:
    """Yield the spans of documents; one that is too long is divided into equal parts.

    A part ends with a line if one ends near; else with a sentence, a word, a character.
    """
    near = part_bytes // 4
    with open(path, "rb") as file:
        for start, end in spans:
            size = end - start
            num_parts = -(-size // (part_bytes - near)) if size > max_bytes else 1
            for left in range(num_parts, 1, -1):
                middle = start + (end - start) // left
                file.seek(middle - near)
                text = file.read(near)
                ends = (list(re.finditer(e, text, re.DOTALL)) for e in _ENDS)
                cut = next((match[-1].end() for match in ends if match), near)
                yield start, middle - near + cut
                start = middle - near + cut
            yield start, end


def read_text(path: str, offset: int, length: int) -> tuple[str, int]:
    """Return a document's text, and its U+FFFD: each was a byte that is not UTF-8."""
    with open(path, "rb") as file:
        file.seek(offset)
        text = file.read(length).decode("utf-8", errors="replace")
    return text, text.count("\ufffd")


def count_lines(path: str, offset: int) -> int:
    """Return the number of the line, from 1, at an offset of a file."""
    with open(path, "rb") as file:
        sizes = [PIECE_BYTES] * (offset // PIECE_BYTES) + [offset % PIECE_BYTES]
        feeds = returns = 0
        for size in sizes:
            piece = file.read(size)
            feeds, returns = feeds + piece.count(b"\n"), returns + piece.count(b"\r")
        return 1 + (feeds or returns)  # a file may have carriage returns alone


def require_language(code: str) -> None:
    """Raise ValueError if `code` is not an ISO 639-1 language code."""
    if code not in _LANGUAGES:
        raise ValueError(
            f"language={code!r} is not an ISO 639-1 code, such as en, de or ja; for a "
            "language without one, give one whose sentences end in the same way."
        )


def split_sentences(
    text: str,
    mode: Literal["split", "lines"],
    language: str = "en",
    max_characters: int = MAX_CHARACTERS,
) -> list[str]:
    """Return the sentences of a document, stripped, without blank ones.

    By mode "lines", each line is a sentence. By "split", each is prose, which sentencex
    splits by the rules of `language`; a sentence ends at the last white space before
    `max_characters`.
    """
    lines = split_lines(text)
    if mode == "split":
        lines = [
            part
            for line in lines
            for part in _split_prose(line, language, max_characters)
        ]
    return [sentence for line in lines if (sentence := line.strip())]


def _split_prose(line: str, language: str, max_characters: int) -> list[str]:
    """Return the sentences of a line of prose, which is processed in bounded parts.

    The time of sentencex is quadratic in the length if there are no spaces, as in
    Chinese, or if a quotation is never closed: a line of 1 MB would take an hour.
    """
    result: list[str] = []
    start = 0
    line = line if line.isascii() else _SPACE_BEFORE_STOP.sub(" ", line)
    while len(line) - start > max_characters:
        part = line[start : start + max_characters]
        if up_to_break := _UP_TO_BREAK.match(part):
            part = up_to_break[0]
        sentences = _segment(part, language)
        start += len(part)
        if len(sentences) > 1:  # the last may continue: the next part begins with it
            start -= len(sentences.pop())
        result += sentences
    return result + _segment(line[start:], language)


def _segment(text: str, language: str) -> list[str]:
    import sentencex

    try:
        return list(sentencex.segment(language, text))
    except BaseException as error:
        # A panic of its Rust code is a BaseException but not an Exception.
        if type(error).__name__ != "PanicException":
            raise
    return [text]
