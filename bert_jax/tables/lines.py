"""Files of lines: opened, decompressed, decoded and numbered."""

import contextlib
import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from bert_jax.storage.encodings import HEAD_BYTES, encoding_of, remedy_of
from bert_jax.tables.memory import IN_MEMORY, MemoryTable
from bert_jax.tables.standard_input import stdin_reader

ItemT = TypeVar("ItemT")

STDIN = "-"
MAX_LINE_BYTES = 1 << 24
"""A limit for lines of text: a file without line ends would fill the memory."""
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
PACKED = ".bz2 .xz .lz4 .zip .7z .rar .tar .tgz .tbz .txz".split()
_BUFFER_BYTES = 1 << 22
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""A line with its end, which may be a carriage return alone."""


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Return a file's suffix in small letters, before `.gz` or the like.

    Rows in memory are of the kind of .jsonl.
    """
    if isinstance(path, MemoryTable):
        return ".jsonl"
    stem, suffix = os.path.splitext(os.fspath(path).lower())
    return os.path.splitext(stem)[1] if suffix in _COMPRESSIONS else suffix


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """Return whether a file's name says that it is compressed."""
    return os.path.splitext(os.fspath(path).lower())[1] in _COMPRESSIONS


def numbered(source: str) -> str:
    """Return what messages number: the rows of what has no lines, or the lines."""
    has_rows = isinstance(source, MemoryTable) or suffix_of(source) == ".parquet"
    return "row" if has_rows else "line"


def display_name(source: str) -> str:
    """Return the name of a file for messages."""
    return "standard input" if source == STDIN else source


def require_file(path: str | Path, remedy: str) -> None:
    """Raise FileNotFoundError unless a path is a regular file, or rows in memory."""
    if isinstance(path, MemoryTable) or Path(path).is_file():
        return
    kind = ""
    if str(path).endswith(IN_MEMORY):
        remedy = "a workdir keeps no rows: pass them again, or a file."
    if Path(path).exists():
        kind = " but a directory" if Path(path).is_dir() else " but a pipe or a device"
    raise FileNotFoundError(f"{path} is not a file{kind}; {remedy}")


def damaged(path: str, form: str, reason: object) -> ValueError:
    """Return the error of a file that cannot be read as the form that its name says."""
    return ValueError(
        f"{path} is damaged or not {form} ({' '.join(str(reason).split())[:200]}); get "
        "it again or leave it out."
    )


@contextlib.contextmanager
def open_file(source: str) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if its name ends in .gz or .zst; -: standard input.

    Raise FileNotFoundError if there is no such file, or ValueError if it is damaged, or
    compressed otherwise, or if standard input is closed.
    """
    if source == STDIN:
        if sys.stdin is None:
            raise ValueError("standard input is closed; open it, or name a file.")
        yield sys.stdin.buffer
        return
    require_file(source, "name one, or - for standard input.")
    if suffix_of(source) in PACKED:
        raise ValueError(
            f"input {source!r} is of an unsupported kind; unpack it, or compress the "
            "file by gzip or zstd."
        )
    with open(source, "rb") as file:
        if not is_compressed(source):
            yield file
            return
        form = _COMPRESSIONS[Path(source).suffix.lower()]
        if not os.fstat(file.fileno()).st_size:
            raise damaged(source, form, "it is empty")
        try:
            yield io.BufferedReader(_unpacked(file, form), _BUFFER_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            if getattr(error, "errno", None) is not None:  # of the disk, not of these
                raise
            raise damaged(source, form, error) from error


def _unpacked(file: IO[bytes], form: str) -> Any:
    """Return the stream of what a compressed file holds."""
    import pyarrow

    file.seek(max(0, os.fstat(file.fileno()).st_size - 4))
    is_padded = not any(file.read())
    file.seek(0)
    # Tapes pad files with zeros, which pyarrow takes for data; it reads faster.
    if is_padded and form == "gzip":
        return gzip.GzipFile(fileobj=file)
    return pyarrow.CompressedInputStream(file, form)


def decode(content: bytes, name: str | Path, offset: int = 0) -> str:
    """Return bytes of UTF-8, at an offset of a file, as text.

    Raise ValueError if they are not UTF-8, or begin a file that is no text.
    """
    if not offset:
        encoding_of(content[:HEAD_BYTES], str(name))
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name}: byte {content[error.start]:#04x} at {offset + error.start} is "
            f"not UTF-8; {remedy_of(content, error.start)}."
        ) from error


def read_text(path: Path) -> str:
    """Return a file's text, less a byte order mark; ValueError if it is not UTF-8."""
    with open_file(str(path)) as file:
        return decode(file.read(), path).removeprefix("\ufeff")


def ended_lines(source: str, max_bytes: int = -1) -> Iterator[str]:
    r"""Yield the lines of a file with their ends: \n, \r\n, or \r alone.

    A byte order mark before a line is left out: joined files have several.

    Raise FileNotFoundError if there is no such file, or ValueError if it is damaged or
    not UTF-8, or a line is longer than `max_bytes` (-1: any length).
    """
    name, number, offset = display_name(source), 0, 0
    with open_file(source) as file:
        readline = stdin_reader().readline if source == STDIN else file.readline
        while content := readline(max_bytes + 1 if max_bytes >= 0 else -1):
            where = f"{name}, line {number + 1}"
            if 0 <= max_bytes < len(content):
                raise ValueError(
                    f"{where} has more than {max_bytes:,} bytes; write one text per "
                    "line, each shorter than that."
                )
            text = decode(content, where, offset).removeprefix("\ufeff")
            offset += len(content)
            for line in _LINE.findall(text):
                number += 1
                yield line


def read_lines(source: str) -> Iterator[str]:
    """Yield the lines of a file of texts, without their line ends."""
    for line in ended_lines(source, MAX_LINE_BYTES):
        yield line.rstrip("\r\n")


def chunks(source: str, items: Iterator[ItemT], most: int) -> Iterator[list[ItemT]]:
    """Yield lists of at most `most` items, each of which is read from a line of a file.

    Of standard input, a list has the items whose lines are there, so that the first
    ones do not wait until others have come.
    """
    for item in items:
        chunk = [item]
        while len(chunk) < most and (source != STDIN or stdin_reader().has_line()):
            if (following := next(items, None)) is None:
                break
            chunk.append(following)
        yield chunk


def split_lines(text: str) -> list[str]:
    """Split a text into lines, which end with LF, CR LF or CR."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
