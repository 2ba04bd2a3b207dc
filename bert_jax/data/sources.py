"""Sources that `--input` names: text, JSON lines, Parquet, TFDS, documentation.

This module reads text in pieces of bytes, in which blank lines separate documents.
`structured.py` reads records, each of which is a document.
"""

import codecs
import collections
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
from typing import IO, Literal

from bert_jax.storage.files import require_regular_file
from bert_jax.terminal.messages import say

PIECE_BYTES = 1 << 22
"""Bytes in a piece of a file; up to as many more complete its last line."""
BOM = b"\xef\xbb\xbf"
DOCUMENTATION = "installed-documentation"
TFDS = "tfds:"

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
# Read as text, these would be noise, without an error.
_NOT_READ = ".bz2 .xz .lz4 .zip .7z .tar .tgz .tar.gz .tar.zst .parquet.gz .parquet.zst"
# Of the files of a directory, these are read.
_TEXT = ("", ".txt", ".text")
_RECORDS = {".jsonl": "jsonl", ".parquet": "parquet"}
_NO_TEXT = "readme license licence copying changelog makefile".split()
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclasses.dataclass(frozen=True)
class Source:
    """One file, one TFDS dataset, or the documentation of the installed libraries."""

    name: str
    """A file's base name, so that datasets do not depend on local paths.

    Files of one base name have as many of the last parts of their paths, below the
    directory that holds them all, as tell them apart: book1/text.txt. The name of such
    a file changes if a file is added or removed that the parts do not tell apart.
    """
    path: str
    """The path as given, or the file that matched a pattern."""
    kind: Literal["text", "jsonl", "parquet", "tfds", "documentation"]
    compression: str = ""
    """"gzip", "zstd", or empty."""
    input: int = 0
    """The index of the first --input entry that names it."""

    @property
    def in_place(self) -> bool:
        """Whether its documents are spans of the file itself."""
        return self.kind == "text" and not self.compression

    @property
    def holds_records(self) -> bool:
        """Whether each record is a document; otherwise blank lines separate them."""
        return self.kind in ("jsonl", "parquet", "tfds")


def find_sources(inputs: Sequence[str], output: str = "") -> list[Source]:
    """Return the sources that the entries of --input name, each once, sorted by path.

    An entry may be a pattern, in which ** stands for directories of any depth, or a
    directory, which is read with all below it, but for hidden files, tokenizers and
    files that do not hold text; a line says how many.

    Args:
        output: a directory whose files are left out, since they are made of the input.

    Raises:
        FileNotFoundError: an entry matches no file.
        ValueError: an entry is an address, or a file of an unsupported kind.
    """
    sources: dict[Path, Source] = {}
    for number, entry in enumerate(inputs):
        for source in _sources_of(entry, number):
            path = Path(os.path.realpath(source.path))
            if not output or not path.is_relative_to(os.path.realpath(output)):
                sources.setdefault(path, source)
    return _with_names(sorted(sources.values(), key=lambda source: source.path))


def _sources_of(entry: str, number: int) -> list[Source]:
    if entry == DOCUMENTATION:
        return [Source(entry, entry, "documentation", input=number)]
    if entry.startswith(TFDS):
        return [Source(entry, entry, "tfds", input=number)]
    if _ADDRESS.match(entry):
        raise ValueError(
            f"input {entry!r} is an address; download it first and give the file."
        )
    # A path may itself contain brackets: an existing path is not a pattern.
    exists = os.path.exists(entry)
    matches = [entry] if exists else glob.glob(entry, recursive=True)
    # Of links to one file, the shortest. glob follows one to a directory above often.
    shortest = dict[str, str]()
    for path in sorted(matches, key=lambda path: (len(path), path)):
        shortest.setdefault(os.path.realpath(path), path)
    files, skipped = [], collections.Counter[str]()
    for path in shortest.values():
        if not os.path.isdir(path):
            files.append(path)
        elif exists or "**" not in entry:
            files += _files_below(path, skipped)
    if skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(skipped.items()))
        say(f"input {entry}: not read are {kinds}; to read a file, name it.")
    for path in files:
        require_regular_file(path, "input")
    if not files:
        raise FileNotFoundError(
            f"input {entry!r} matches no file; give text files, a directory of them, "
            "or a pattern such as 'text/**/*.txt'."
        )
    return [_file(path, number) for path in files]


def _files_below(directory: str, skipped: collections.Counter[str]) -> list[str]:
    """Return the files of text below a directory; count the others by kind."""
    files, seen = [], set[str]()
    for folder, folders, names in os.walk(directory, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            folders.clear()  # a link to a directory above would never end
            continue
        seen.add(real)
        if "tokenizer_config.json" in names:  # beside it, vocab.txt is no prose
            skipped["tokenizers"] += 1
            folders.clear()
            continue
        hidden = [name for name in folders if name.startswith(".")]
        skipped.update(["hidden"] * len(hidden))
        folders[:] = sorted(set(folders) - set(hidden))
        for name in sorted(names):
            stem, suffix = os.path.splitext(name.lower())
            if suffix in _COMPRESSIONS:
                stem, suffix = os.path.splitext(stem)
            if name.startswith("."):
                skipped["hidden"] += 1
            elif stem in _NO_TEXT or suffix not in (*_TEXT, *_RECORDS):
                skipped[suffix or name] += 1
            else:
                files.append(os.path.join(folder, name))
    return files


def _with_names(sources: list[Source]) -> list[Source]:
    """Give files of one base name names that tell them apart, and do not say where."""
    groups = collections.defaultdict(list)
    for source in sources:
        groups[source.name].append(os.path.abspath(source.path))
    names: dict[str, str] = {}
    for paths in groups.values():
        if len(paths) == 1:
            continue
        root = os.path.commonpath([os.path.dirname(path) for path in paths])
        parts = {path: Path(path).relative_to(root).parts for path in paths}
        ends = collections.Counter(
            _utf8("/".join(part[-number:]))
            for part in parts.values()
            for number in range(1, len(part) + 1)
        )
        for path, part in parts.items():
            shorter = (_utf8("/".join(part[-n:])) for n in range(1, len(part)))
            unique = (name for name in shorter if ends[name] == 1)
            names[path] = next(unique, _utf8("/".join(part)))
    for number, source in enumerate(sources):
        if name := names.get(os.path.abspath(source.path)):
            sources[number] = dataclasses.replace(source, name=name)
    return sources


def _file(path: str, number: int) -> Source:
    stem, suffix = os.path.splitext(path.lower())
    if path.lower().endswith(tuple(_NOT_READ.split())):
        raise ValueError(
            f"input {path!r} is of an unsupported kind; unpack it, "
            "and give text (plain, .gz or .zst), .jsonl or .parquet."
        )
    compression = _COMPRESSIONS.get(suffix, "")
    name = stem if compression else path.lower()
    kind: Literal["text", "jsonl", "parquet"] = "text"
    if name.endswith(".jsonl"):
        kind = "jsonl"
    elif name.endswith(".parquet"):
        kind = "parquet"
    return Source(_utf8(os.path.basename(path)), path, kind, compression, number)


def _utf8(name: str) -> str:
    """Return a file name as valid UTF-8, whatever the locale."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def open_file(source: Source) -> Iterator[IO[bytes]]:
    """Open the file for reading, decompressed; raise ValueError if it is damaged."""
    with open(source.path, "rb") as file:
        if not source.compression:
            yield file
            return
        import pyarrow

        if not os.fstat(file.fileno()).st_size:
            raise damaged(source, source.compression, "it is empty")
        try:
            stream = pyarrow.CompressedInputStream(file, source.compression)
            yield io.BufferedReader(stream, PIECE_BYTES)
        except OSError as error:
            if error.errno is not None:  # an error of the disk, not of the content
                raise
            raise damaged(source, source.compression, str(error)) from error


def damaged(source: Source, form: str, reason: str) -> ValueError:
    """Return the error of a file that cannot be read as the form that its name says."""
    return ValueError(
        f"{source.path} is damaged or not {form} ({reason}); "
        "get it again or leave it out."
    )


def read_pieces(
    source: Source, strict: bool, piece_bytes: int = PIECE_BYTES
) -> Iterator[bytes]:
    """Yield the text in pieces of about `piece_bytes` that end at the end of a line.

    Only lines longer than a piece may be split. If `strict`, check that it is UTF-8.

    Raises:
        ValueError: a compressed file is damaged; the text is not UTF-8.
    """
    documentation = source.kind == "documentation"
    pieces = _documentation() if documentation else _file_pieces(source, piece_bytes)
    return _strict(pieces, source.path) if strict else pieces


def _file_pieces(source: Source, piece_bytes: int) -> Iterator[bytes]:
    with open_file(source) as file:
        while piece := file.read(piece_bytes):
            piece += file.readline(piece_bytes)
            while piece.endswith(b"\r") and (more := file.read(1)):
                piece += more  # keep CR and LF in one piece
            yield piece


def _documentation() -> Iterator[bytes]:
    """Yield a piece for each library, with a blank line after it."""
    with tempfile.TemporaryDirectory() as folder:
        write_documentation(Path(folder) / "text")
        for path in sorted(Path(folder).glob("text/*.txt")):
            yield path.read_bytes() + b"\n"


def write_documentation(folder: Path) -> None:
    """Write the text of `installed-documentation`, a file for each library."""
    # Imported by name, because `data` must not depend on `demo`.
    module = importlib.import_module("bert_jax.demo.installed_documentation")
    module.write_corpus(folder)


def _strict(pieces: Iterator[bytes], path: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0  # of the end of the piece in the file
    try:
        for piece in pieces:
            offset += len(piece)
            decoder.decode(piece)
            yield piece
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        # error.object includes undecoded bytes from the end of the previous piece.
        place = offset - len(error.object) + error.start
        byte = error.object[error.start]
        raise ValueError(
            f"{path}: byte 0x{byte:02x} at {place} is not UTF-8; convert the text, "
            "or without --strict such bytes are replaced and counted."
        ) from error
