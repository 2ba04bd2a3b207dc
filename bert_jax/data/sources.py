"""Sources that `--input` names: text, JSON lines, Parquet, TFDS, documentation.

This module reads text in pieces of bytes, in which blank lines separate documents.
`structured.py` reads records, each of which is a document.
"""

import codecs
import collections
import dataclasses
import glob
import io
import itertools
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bert_jax.data.installed_documentation import write_corpus
from bert_jax.storage.encodings import HEAD_BYTES, encoding_of, remedy_of, require_prose
from bert_jax.storage.files import require_regular_file
from bert_jax.storage.manifest import MANIFEST
from bert_jax.tables.lines import PACKED, is_compressed, open_file, suffix_of
from bert_jax.terminal.messages import say

PIECE_BYTES = 1 << 22
"""Bytes in a piece of a file; up to as many more complete its last line."""
BOM = b"\xef\xbb\xbf"
DOCUMENTATION = "installed-documentation"
TFDS = "tfds:"
UNFINISHED = "unfinished"
"""Subdirectory of an unfinished dataset: a lock, its plan and the finished chunks."""
LOCK = "lock"

_KINDS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "table",
    ".tsv": "table",
    ".parquet": "parquet",
}
"""Kinds of files by their suffixes; any other is text."""
# Read as text, these would be noise, without an error.
_NOT_READ = """
.xml .html .htm .xhtml .pdf .doc .docx .odt .rtf .epub .mobi .warc .wet .wat .xls .xlsx
.ods .pptx .arrow .feather .avro .orc .tfrecord .pkl .npy .npz .db .sqlite .sqlite3
""".split()
# Of the files of a directory, these are read, and _KINDS.
_TEXT = ("", ".txt", ".text")
# But not the second ones beside the first, which they describe.
_BESIDE = (
    (_TEXT, (".csv", ".tsv", ".json")),
    ((".jsonl", ".ndjson", ".parquet"), (".json",)),
)
_NO_TEXT = "readme license licence copying changelog makefile".split()
_SHARD = re.compile(r"(train|validation)-\d+-of-\d+\.npy")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_TOKENIZER = "tokenizer_config.json"  # beside it, vocab.txt is no prose
_OF_TOKENIZERS = re.compile(r"(vocab|merges|tokenizer\w*|\w+_tokens\w*)\.\w+")
_MAX_KINDS, _UNREADABLE = 16, "directories that cannot be read"
_COPIES = "copies of text in unfinished datasets"


@dataclasses.dataclass(frozen=True, slots=True)
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
    kind: str
    """A kind of `_KINDS`, or "text", "tfds" or "documentation"."""
    input: int = 0
    """The index of the first --input entry that names it."""

    @property
    def in_place(self) -> bool:
        """Whether its documents are spans of the file itself, if that is UTF-8."""
        return self.kind == "text" and not is_compressed(self.path)

    @property
    def holds_records(self) -> bool:
        """Whether each record is a document; otherwise blank lines separate them."""
        return self.kind not in ("text", "documentation")


def find_sources(inputs: Sequence[str], output: str = "") -> list[Source]:
    """Return the sources that the entries of --input name, each once, sorted by path.

    An entry may be a pattern, in which ** stands for directories of any depth, or a
    directory, which is read with all below it, but for hidden files, tokenizers,
    datasets and files that do not hold text; a line says how many. Files in the
    directory `output` are left out, since they are made of the input.

    Raise FileNotFoundError if an entry matches no file, or ValueError if one is an
    address, or a file of an unsupported kind.
    """
    sources: dict[str, Source] = {}
    outputs = os.path.realpath(output) + os.sep
    for number, entry in enumerate(inputs):
        before, again = len(sources), set[str]()
        for source in _sources_of(entry, number):
            path = os.path.realpath(source.path)
            if not output or not (path + os.sep).startswith(outputs):
                if sources.setdefault(path, source).input < number:
                    again.add(path)
        if again:
            total = len(again) + len(sources) - before
            part = f"{len(again)} of {total} files of " * (len(again) < total)
            say(
                f"input {entry}: {part}what it names is in an earlier --input; it is "
                "read once, with the weight of that one."
            )
    return _with_names(
        sorted(sources.values(), key=lambda one: os.path.normpath(one.path))
    )


def _sources_of(entry: str, number: int) -> list[Source]:
    if entry == DOCUMENTATION or entry.startswith(TFDS):
        kind = "documentation" if entry == DOCUMENTATION else "tfds"
        return [Source(entry, entry, kind, number)]
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
    skipped.update([] if exists else _unreadable(entry))
    for path in shortest.values():
        if not exists and (kind := _kind_of_written(path)):
            skipped[kind] += 1
        elif not os.path.isdir(path):
            files.append(path)
        elif exists or "**" not in entry:
            files += _files_below(path, skipped)
    if skipped:
        kinds = _commonest(skipped)
        say(f"input {entry}: not read are {kinds}; to read a file, name it.")
    for path in files:
        require_regular_file(path, "input")
    if not files:
        raise FileNotFoundError(
            f"input {entry!r} matches no file; give text files, a directory of them, "
            "or a pattern such as 'text/**/*.txt'."
        )
    return [_file(path, number) for path in files]


def _commonest(skipped: collections.Counter[str]) -> str:
    """Return the numbers of the commonest kinds of what is not read, and of others.

    `chapter.0001` is a kind of its own; what may hold text is named before such.
    """
    order = sorted(skipped, key=lambda kind: (kind != _UNREADABLE, -skipped[kind]))
    most = {kind: skipped[kind] for kind in order[:_MAX_KINDS]}
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(most.items()))
    if others := skipped.total() - sum(most.values()):
        kinds += f" and {others} of {len(skipped) - len(most)} other kinds"
    return kinds


def _unreadable(pattern: str) -> Iterator[str]:
    """Yield `_UNREADABLE` for each directory of a pattern that glob cannot read."""
    folders, name = os.path.split(pattern)
    mode = os.R_OK | os.X_OK if glob.has_magic(name) else os.X_OK
    for folder in glob.glob(folders, recursive=True):
        if os.path.isdir(folder) and not os.access(folder, mode):
            yield _UNREADABLE


def _files_below(directory: str, skipped: collections.Counter[str]) -> list[str]:
    """Return the files of text below a directory; count the others by kind."""
    files, seen, count = [], set[str](), lambda _: skipped.update([_UNREADABLE])
    for folder, folders, names in os.walk(directory, onerror=count, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            folders.clear()  # a link to a directory above would never end
            continue
        seen.add(real)
        if kind := _kind_of_directory(folder, names):
            skipped[kind] += 1
            folders.clear()
            continue
        hidden = [name for name in folders if name.startswith(".")]
        skipped.update(["hidden"] * len(hidden))
        folders[:] = sorted(set(folders) - set(hidden))
        for name in sorted(names):
            suffix = suffix_of(name)
            # Data tools leave marks, such as _SUCCESS.
            if name.startswith(".") or (name.startswith("_") and not suffix):
                skipped["hidden"] += 1
            elif name.lower().partition(".")[0] in _NO_TEXT:
                skipped[name] += 1
            elif suffix in (*_TEXT, *_KINDS):
                files.append(os.path.join(folder, name))
            else:
                skipped[suffix] += 1
    filled = {suffix_of(p) for p in files if os.path.exists(p) and os.path.getsize(p)}
    for texts, others in _BESIDE:
        if filled & set(texts):
            skipped.update(s for path in files if (s := suffix_of(path)) in others)
            files = [path for path in files if suffix_of(path) not in others]
    return files


def _kind_of_directory(folder: str, names: Sequence[str]) -> str:
    if _TOKENIZER in names:
        return "tokenizers"
    is_finished = MANIFEST in names and any(map(_SHARD.fullmatch, names))
    is_unfinished = os.path.exists(os.path.join(folder, UNFINISHED, LOCK))
    return "datasets" if is_finished or is_unfinished else ""


def _kind_of_written(path: str) -> str:
    """Return what a file is that `vocab` or `prepare` wrote, or ""."""
    directory, name = os.path.split(os.path.abspath(path))
    beside = os.path.join(directory, _TOKENIZER)
    if _OF_TOKENIZERS.fullmatch(name) and os.path.exists(beside):
        return "files of tokenizers"
    is_copy = directory.endswith(os.path.join(os.sep, UNFINISHED, "text"))
    return _COPIES if is_copy and os.path.exists(f"{directory}/../{LOCK}") else ""


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
        ends = {}
        for path in paths:
            parts = os.path.relpath(path, root).split(os.sep)
            lengths = range(1, len(parts) + 1)
            ends[path] = [_utf8("/".join(parts[-length:])) for length in lengths]
        counts = collections.Counter(itertools.chain.from_iterable(ends.values()))
        for path, names_of in ends.items():
            unique = (name for name in names_of if counts[name] == 1)
            names[path] = next(unique, names_of[-1])
    return [
        dataclasses.replace(one, name=names.get(os.path.abspath(one.path), one.name))
        for one in sources
    ]


def _file(path: str, number: int) -> Source:
    suffix = suffix_of(path)
    kind = _KINDS.get(suffix, "text")
    is_packed = suffix in PACKED or (kind == "parquet" and is_compressed(path))
    if is_packed or suffix in _NOT_READ:
        remedy = "unpack it" if is_packed else "extract its text"
        raise ValueError(
            f"input {path!r} is of an unsupported kind; {remedy}, and give text, "
            ".jsonl, .json, .csv or .tsv (plain, .gz or .zst), or .parquet."
        )
    return Source(_utf8(os.path.basename(path)), path, kind, number)


def _utf8(name: str) -> str:
    """Return a file name as valid UTF-8, whatever the locale."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def encoding_of_source(source: Source) -> str:
    """Return the encoding that a file's byte order mark names; "utf-8" without one.

    Raise ValueError if the file is damaged, or not what its name says.
    """
    if source.kind == "documentation":
        return "utf-8"
    with open_file(source.path) as file:
        head = file.read(HEAD_BYTES)
    encoding = encoding_of(head, source.path)
    if source.kind == "text":
        require_prose(head.decode(encoding, "replace").encode(), source.path)
    return encoding


def read_pieces(
    source: Source, strict: bool, piece_bytes: int = PIECE_BYTES
) -> Iterator[bytes]:
    """Yield the text in pieces of about `piece_bytes` that end at the end of a line.

    Only lines longer than a piece may be split. Text in UTF-16 or UTF-32, which a byte
    order mark tells, becomes UTF-8; unless `strict`, what cannot be decoded becomes a
    byte that UTF-8 does not have. Raise ValueError if a file is damaged, or not what
    its name says, or if the text is `strict`, but not in its encoding.
    """
    encoding = encoding_of_source(source)
    documentation = source.kind == "documentation"
    pieces = _documentation() if documentation else _file_pieces(source, piece_bytes)
    if encoding == "utf-8" and not strict:
        return pieces
    return _decoded(pieces, source.path, encoding, strict)


def read_lines(source: Source) -> Iterator[bytes]:
    """Yield the lines of a file in UTF-8, without a check of its bytes."""
    rest = b""
    for piece in read_pieces(source, strict=False):
        lines = (rest + piece).splitlines(keepends=True)
        is_open = lines and not lines[-1].endswith((b"\n", b"\r"))
        rest = lines.pop() if is_open else b""
        yield from (line.rstrip(b"\r\n") for line in lines)
    yield rest


def _file_pieces(source: Source, piece_bytes: int) -> Iterator[bytes]:
    with open_file(source.path) as file:
        while piece := file.read(piece_bytes):
            piece += file.readline(piece_bytes)
            while piece.endswith(b"\r") and (more := file.read(1)):
                piece += more  # keep CR and LF in one piece
            yield piece


def _documentation() -> Iterator[bytes]:
    """Yield a piece for each library, with a blank line after it."""
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder) / "text")
        for path in sorted(Path(folder).glob("text/*.txt")):
            yield path.read_bytes() + b"\n"


def _decoded(
    pieces: Iterable[bytes], path: str, encoding: str, strict: bool
) -> Iterator[bytes]:
    """Yield pieces that are valid as they are, and others as UTF-8."""
    errors = "strict" if strict else "bert_jax_bad_byte"
    codecs.register_error("bert_jax_bad_byte", _bad_byte)
    decode = codecs.getincrementaldecoder(encoding)(errors)
    # It keeps CR and LF in one piece.
    decoder = io.IncrementalNewlineDecoder(decode, translate=False)
    offset, line = 0, 1  # of the end of the piece in the file
    try:
        for piece in itertools.chain(pieces, [b""]):
            offset += len(piece)
            text = decoder.decode(piece, final=not piece)
            line += _num_lines(text)
            if encoding != "utf-8":
                piece = text.encode(errors="surrogateescape")
            if piece:
                yield piece
    except UnicodeDecodeError as error:
        # error.object includes undecoded bytes from the end of the previous piece.
        content, start = error.object, error.start
        line += _num_lines(content[:start].decode(encoding, errors="replace"))
        remedy = (
            remedy_of(content, start)
            if encoding == "utf-8"
            else "its first bytes say so, but it is damaged; get it again"
        )
        raise ValueError(
            f"{path}: byte {content[start]:#04x} at {offset - len(content) + start} is "
            f"not {encoding.upper()}; {remedy}. It is in line {line}; with --no-strict "
            "such bytes are replaced and counted."
        ) from error


def _bad_byte(error: UnicodeError) -> tuple[str, int]:
    """Replace what cannot be decoded by a byte that UTF-8 does not have."""
    assert isinstance(error, UnicodeDecodeError)
    return "\udcff", error.end


def _num_lines(text: str) -> int:
    return text.count("\n") or text.count("\r")
