"""What `--input` names: text files, JSON lines, Parquet, TFDS, installed documentation.

Text comes as pieces of bytes, in which blank lines part documents. Records, each of
them a document, are read by `structured.py`.
"""

import codecs
import contextlib
import dataclasses
import glob
import importlib
import io
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from bert_jax.storage.files import require_regular_file

PIECE = 1 << 22
"""Bytes that a file is read in, and as many more up to the end of a line."""
BOM = b"\xef\xbb\xbf"
DOCUMENTATION = "installed-documentation"
TFDS = "tfds:"

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
# Read as text, these would be noise that nobody notices.
_NOT_READ = ".bz2 .xz .lz4 .zip .7z .tar .tgz .tar.gz .tar.zst .parquet.gz .parquet.zst"
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclasses.dataclass(frozen=True)
class Source:
    """One file, one TFDS dataset, or the documentation of what is installed."""

    name: str
    """A file's base name: a dataset does not say where it was made."""
    path: str
    """As it was given; of a pattern, the file that matched."""
    kind: Literal["text", "jsonl", "parquet", "tfds", "documentation"]
    compression: str = ""
    """"gzip", "zstd", or none."""
    input: int = 0
    """The number of the first entry of --input that names it."""

    @property
    def in_place(self) -> bool:
        """Whether its documents are stretches of the file itself."""
        return self.kind == "text" and not self.compression

    @property
    def holds_records(self) -> bool:
        """Whether each record is a document, and not what blank lines part."""
        return self.kind in ("jsonl", "parquet", "tfds")


def find_sources(inputs: Sequence[str]) -> list[Source]:
    """What the entries of --input name, each once, sorted by path.

    Raises:
        FileNotFoundError: an entry matches no file.
        ValueError: an entry is an address, or a file of a kind that is not read.
    """
    found: dict[str, Source] = {}
    for number, entry in enumerate(inputs):
        for source in _sources_of(entry, number):
            found.setdefault(os.path.abspath(source.path), source)
    return sorted(found.values(), key=lambda source: source.path)


def _sources_of(entry: str, number: int) -> list[Source]:
    if entry == DOCUMENTATION:
        return [Source(entry, entry, "documentation", input=number)]
    if entry.startswith(TFDS):
        return [Source(entry, entry, "tfds", input=number)]
    if _ADDRESS.match(entry):
        raise ValueError(
            f"input {entry!r} is an address; download it first and give the file."
        )
    # A path may hold brackets of its own: what exists is no pattern.
    matches = [entry] if os.path.exists(entry) else glob.glob(entry)
    for path in matches:
        if not os.path.isdir(path):
            require_regular_file(path, "input")
    files = [path for path in matches if os.path.isfile(path)]
    if not files:
        raise FileNotFoundError(
            f"input {entry!r} matches no file; give text files, "
            "or a pattern such as 'text/*.txt'."
        )
    return [_file(path, number) for path in files]


def _file(path: str, number: int) -> Source:
    stem, suffix = os.path.splitext(path.lower())
    if path.lower().endswith(tuple(_NOT_READ.split())):
        raise ValueError(
            f"input {path!r} is of a kind that is not read; unpack it, "
            "and give text (as it is, .gz or .zst), .jsonl or .parquet."
        )
    compression = _COMPRESSIONS.get(suffix, "")
    name = stem if compression else path.lower()
    kind: Literal["text", "jsonl", "parquet"] = "text"
    if name.endswith(".jsonl"):
        kind = "jsonl"
    elif name.endswith(".parquet"):
        kind = "parquet"
    # The same whatever the locale, and always text that can be written.
    base = os.fsencode(os.path.basename(path)).decode("utf-8", "backslashreplace")
    return Source(base, path, kind, compression, number)


@contextlib.contextmanager
def open_file(source: Source) -> Iterator[IO[bytes]]:
    """The file's bytes, decompressed.

    Raises:
        ValueError: what is compressed is cut short or damaged.
    """
    with open(source.path, "rb") as file:
        if not source.compression:
            yield file
            return
        import pyarrow

        if not os.fstat(file.fileno()).st_size:
            raise _damaged(source, "it is empty")
        try:
            stream: Any = pyarrow.CompressedInputStream(file, source.compression)
            yield io.BufferedReader(stream, PIECE)
        except OSError as error:
            if error.errno is not None:  # the disk's complaint, not the library's
                raise
            raise _damaged(source, str(error)) from error


def _damaged(source: Source, what: str) -> ValueError:
    return ValueError(
        f"{source.path} is damaged or not {source.compression} ({what}); "
        "get it again or leave it out."
    )


def read_pieces(source: Source, strict: bool) -> Iterator[bytes]:
    """Text in bounded pieces that end where a line does.

    Only a line of more than two pieces is cut inside. `strict` checks that it is UTF-8.

    Raises:
        ValueError: what is compressed is damaged; the text is not UTF-8.
    """
    assert not source.holds_records
    documentation = source.kind == "documentation"
    pieces = _documentation() if documentation else _file_pieces(source)
    return _strict(pieces, source.path) if strict else pieces


def _file_pieces(source: Source) -> Iterator[bytes]:
    with open_file(source) as file:
        while piece := file.read(PIECE):
            piece += file.readline(PIECE)
            while piece.endswith(b"\r") and (more := file.read(1)):
                piece += more  # it may end the line together with a line feed
            yield piece


def _documentation() -> Iterator[bytes]:
    """A piece for each library, with a blank line after it."""
    with tempfile.TemporaryDirectory() as folder:
        write_documentation(Path(folder) / "text")
        for path in sorted(Path(folder).glob("text/*.txt")):
            yield path.read_bytes() + b"\n"


def write_documentation(folder: Path) -> None:
    """Write the text of `installed-documentation`, a file for each library."""
    # Named and not imported: it belongs to the demo, which stands on all the rest.
    module = importlib.import_module("bert_jax.demo.installed_documentation")
    module.write_corpus(folder)


def _strict(pieces: Iterator[bytes], path: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0  # in the file, of the end of the piece
    try:
        for piece in pieces:
            offset += len(piece)
            decoder.decode(piece)
            yield piece
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        # What it could not decode includes the end of the piece before.
        place = offset - len(error.object) + error.start
        byte = error.object[error.start]
        raise ValueError(
            f"{path}: byte 0x{byte:02x} at {place} is not UTF-8; convert the text, "
            "or without --strict such bytes are replaced and counted."
        ) from error
