"""English that every install has: the documentation of Python and of our dependencies.

The sources are read, never imported. A module is a document: the prose paragraphs of
its docstrings. Code, tables, headings and references are dropped, and a paragraph that
came up before is kept only once, so that no split of the documents has the same text on
both sides.
"""

import ast
import dataclasses
import gc
import hashlib
import importlib.metadata
import multiprocessing
import os
import platform
import re
import shutil
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from etils import epath

from bert_jax.config.serialization import to_dict
from bert_jax.data.worker_lifetime import end_with_parent
from bert_jax.demo.prose import fold, paragraphs
from bert_jax.storage.files import write_json

DISTRIBUTIONS = (
    "jax flax optax orbax-checkpoint tensorflow tensorflow-cpu tensorflow-datasets"
    " sentencepiece tokenizers sentencex tyro rich tensorboardX scikit-learn jaxtyping"
    " safetensors pyarrow importlib-resources"
).split()
"""These and whatever they require, as far as it is installed, make the corpus."""


@dataclasses.dataclass(frozen=True)
class Library:
    """Python itself or one installed distribution."""

    name: str
    version: str
    modules: tuple[tuple[str, Path], ...]
    """Dotted name and file of each module, sorted by name."""


@dataclasses.dataclass(frozen=True)
class LibrarySummary:
    """What one library gave."""

    version: str
    documents: int
    paragraphs: int
    words: int


@dataclasses.dataclass(frozen=True)
class CorpusSummary:
    """What `write_corpus` wrote, and what it left out."""

    documents: int
    paragraphs: int
    words: int
    bytes: int
    duplicates: int
    """Paragraphs of prose dropped because they had come up before."""
    unreadable: tuple[str, ...]
    """Modules that could not be read or parsed."""
    sha256: str
    """Over names and bytes of the text files."""
    libraries: dict[str, LibrarySummary]


def docstrings(source: bytes | str) -> list[str]:
    """The docstrings of a module, its classes, functions and attributes, in order.

    Beside them, every string of several lines in a plain statement of the module: there
    `pydoc_data.topics` and NumPy's `add_newdoc` keep their documentation.

    Raises:
        SyntaxError, ValueError, RecursionError: `source` is not a Python module.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's invalid escapes
        statements = ast.parse(source).body
    found: list[str] = []
    for statement in statements:
        nested = hasattr(statement, "body")
        found += _nested_docstrings(statement) if nested else _strings(statement)
    return found


def _nested_docstrings(node: ast.AST) -> Iterator[str]:
    for field in ("body", "orelse", "handlers"):
        for child in getattr(node, field, ()):
            if isinstance(child, ast.Expr):
                if isinstance(child.value, ast.Constant):
                    yield from _strings(child)
            else:
                yield from _nested_docstrings(child)


def _strings(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            if isinstance(node, ast.Expr) or "\n" in child.value:
                yield child.value


def installed_libraries() -> list[Library]:
    """Python's standard library and the installed `DISTRIBUTIONS`, sorted by name."""
    found: dict[str, importlib.metadata.Distribution] = {}
    names = list(DISTRIBUTIONS)
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # not needed on this platform
        for requirement in found[name].requires or ():
            if "extra ==" not in requirement:
                names.append(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    stdlib = Path(sysconfig.get_path("stdlib"))
    files = (path.relative_to(stdlib).as_posix() for path in stdlib.rglob("*.py"))
    libraries = [library("python", platform.python_version(), stdlib, files)]
    for name, distribution in found.items():
        files = (file.as_posix() for file in distribution.files or ())
        root = Path(str(distribution.locate_file("")))
        libraries.append(library(name, distribution.version, root, files))
    return sorted(libraries, key=lambda library: library.name)


_NOT_DOCUMENTATION = re.compile(
    r"(^|/)(\.\.|__pycache__|(site|dist)-packages|tests?|_vendor|idle_test|conftest\.py"
    r"|test_[^/]*|[^/]*_test\.py)(/|$)"
)


def library(name: str, version: str, root: Path, files: Iterable[str]) -> Library:
    """The library whose modules are the `.py` files among `files`, tests left out."""
    modules = {
        file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): root
        / file
        for file in files
        if file.endswith(".py") and not _NOT_DOCUMENTATION.search(file)
    }
    return Library(name, version, tuple(sorted(modules.items())))


def read_module(path: Path) -> list[str] | None:
    """The paragraphs of a Python source; None if it cannot be read or parsed."""
    try:
        texts = docstrings(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return [paragraph for text in texts for paragraph in paragraphs(text)]


def _read_modules(paths: list[Path], workers: int) -> list[list[str] | None]:
    if workers == 1:
        return [read_module(path) for path in paths]
    # A forked child would inherit the locks of JAX's and TensorFlow's threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count(), context, _start_worker) as pool:
        return list(pool.map(read_module, paths, chunksize=32))


def _start_worker() -> None:
    end_with_parent()
    # Syntax trees hold no cycles: looking for them takes a third of the parser's time.
    gc.disable()


@dataclasses.dataclass
class _Corpus:
    documents: dict[str, dict[str, list[str]]]
    """By library and module; only those that have paragraphs."""
    duplicates: int = 0
    unreadable: tuple[str, ...] = ()


def _read_corpus(libraries: Sequence[Library], workers: int) -> _Corpus:
    """The documents of `libraries`; a paragraph stays where it comes up first."""
    corpus = _Corpus({library.name: {} for library in libraries})
    modules = [
        (library.name, *module) for library in libraries for module in library.modules
    ]
    found = _read_modules([path for *_, path in modules], workers)
    seen: set[str] = set()
    for (library, name, _), document in zip(modules, found, strict=True):
        if document is None:
            corpus.unreadable += (f"{library}: {name}",)
            continue
        fresh = []
        for paragraph in document:
            folded = fold(paragraph)
            if folded not in seen:
                seen.add(folded)
                fresh.append(paragraph)
        corpus.duplicates += len(document) - len(fresh)
        if fresh:
            corpus.documents[library][name] = fresh
    return corpus


def _summarize(
    corpus: _Corpus, texts: dict[str, str], libraries: Sequence[Library]
) -> CorpusSummary:
    digest = hashlib.sha256()
    for name, text in texts.items():
        digest.update(f"{name}\n{text}".encode())
    parts = {
        library.name: LibrarySummary(
            version=library.version,
            documents=len(corpus.documents[library.name]),
            paragraphs=sum(map(len, corpus.documents[library.name].values())),
            words=len(texts[library.name].split()),
        )
        for library in libraries
    }
    return CorpusSummary(
        documents=sum(part.documents for part in parts.values()),
        paragraphs=sum(part.paragraphs for part in parts.values()),
        words=sum(part.words for part in parts.values()),
        bytes=sum(len(text.encode()) for text in texts.values()),
        duplicates=corpus.duplicates,
        unreadable=corpus.unreadable,
        sha256=digest.hexdigest(),
        libraries=parts,
    )


def write_corpus(
    directory: str | os.PathLike[str],
    libraries: Sequence[Library] | None = None,
    workers: int = 0,
) -> CorpusSummary:
    """Write the documentation of `libraries` (None: of the installed ones) as text.

    `directory` then holds `NAME.txt` for each library with prose (one paragraph a line,
    a blank line between documents) and `corpus.json`: the summary, and the module that
    each document is. The number of processes (0: one a core) changes only the time.

    Raises:
        FileExistsError: `directory` is there and not empty.
        ValueError: the libraries hold no prose.
    """
    target = Path(directory).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} is not an empty directory; name another.")
    if libraries is None:
        libraries = installed_libraries()
    corpus = _read_corpus(libraries, workers)
    texts = {
        name: "\n".join("\n".join([*lines, ""]) for lines in documents.values())
        for name, documents in corpus.documents.items()
    }
    summary = _summarize(corpus, texts, libraries)
    if not summary.documents:
        names = ", ".join(library.name for library in libraries)
        raise ValueError(f"No prose in {names}: install them with their sources (.py).")
    temporary = target.with_name(target.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for name, text in texts.items():
        if text:
            (temporary / f"{name}.txt").write_text(text, encoding="utf-8")
    modules = {name: list(documents) for name, documents in corpus.documents.items()}
    write_json(
        to_dict(summary) | {"modules": modules}, epath.Path(temporary / "corpus.json")
    )
    temporary.rename(target)
    return summary
