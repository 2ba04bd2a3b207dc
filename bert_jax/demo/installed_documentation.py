"""A corpus that every installation has: docstrings of Python and of the dependencies.

The sources are read, never imported. Each module is a document: the prose paragraphs of
its docstrings, without code, tables, headings and references. Duplicate paragraphs are
dropped, so that no text is in both training and validation documents.
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
from bert_jax.demo.prose import duplicate_key, paragraphs
from bert_jax.storage.files import write_json
from bert_jax.terminal.cores import num_cores

DISTRIBUTIONS = (
    "jax flax optax orbax-checkpoint tensorflow tensorflow-cpu tensorflow-datasets"
    " sentencepiece tokenizers sentencex tyro rich tensorboardX scikit-learn jaxtyping"
    " safetensors pyarrow importlib-resources"
).split()
"""The corpus is made from these and their requirements, as far as installed."""


@dataclasses.dataclass(frozen=True)
class Library:
    """Python itself, or one installed distribution."""

    name: str
    version: str
    modules: tuple[tuple[str, Path], ...]
    """Dotted name and file of each module, sorted by name."""


@dataclasses.dataclass(frozen=True)
class LibrarySummary:
    """The counts of one library's documentation."""

    version: str
    documents: int
    paragraphs: int
    words: int


@dataclasses.dataclass(frozen=True)
class CorpusSummary:
    """The counts of what `write_corpus` wrote and left out."""

    documents: int
    paragraphs: int
    words: int
    bytes: int
    duplicates: int
    """Duplicate paragraphs that were dropped."""
    unreadable: tuple[str, ...]
    """Modules that could not be read or parsed."""
    sha256: str
    """Checksum of the names and contents of the text files."""
    libraries: dict[str, LibrarySummary]


def docstrings(source: bytes | str) -> list[str]:
    """The docstrings of a module, its classes, functions and attributes, in order.

    They include every string of several lines in a simple statement of the module,
    where `pydoc_data.topics` and NumPy's `add_newdoc` keep documentation.

    Raises:
        SyntaxError, ValueError, RecursionError: `source` is not a Python module.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other packages
        statements = ast.parse(source).body
    texts: list[str] = []
    for statement in statements:
        nested = hasattr(statement, "body")
        texts += _nested_docstrings(statement) if nested else _strings(statement)
    return texts


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
    distributions: dict[str, importlib.metadata.Distribution] = {}
    names = list(DISTRIBUTIONS)
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name in distributions:
            continue
        try:
            distributions[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # not needed on this platform
        for requirement in distributions[name].requires or ():
            if "extra ==" not in requirement:
                names.append(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    stdlib = Path(sysconfig.get_path("stdlib"))
    files = (path.relative_to(stdlib).as_posix() for path in stdlib.rglob("*.py"))
    libraries = [make_library("python", platform.python_version(), stdlib, files)]
    for name, distribution in distributions.items():
        files = (file.as_posix() for file in distribution.files or ())
        root = Path(str(distribution.locate_file("")))
        libraries.append(make_library(name, distribution.version, root, files))
    return sorted(libraries, key=lambda library: library.name)


_NOT_DOCUMENTATION = re.compile(
    r"(^|/)(\.\.|__pycache__|(site|dist)-packages|tests?|_vendor|idle_test|conftest\.py"
    r"|test_[^/]*|[^/]*_test\.py)(/|$)"
)


def make_library(name: str, version: str, root: Path, files: Iterable[str]) -> Library:
    """A library with the `.py` files of `files` as modules, except tests."""
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
    with ProcessPoolExecutor(workers or num_cores(), context, _start_worker) as pool:
        return list(pool.map(read_module, paths, chunksize=32))


def _start_worker() -> None:
    end_with_parent()
    # Syntax trees have no cycles, and the search for them takes a third of the time.
    gc.disable()


@dataclasses.dataclass
class _Corpus:
    documents: dict[str, dict[str, list[str]]]
    """Library → module → paragraphs; only modules that have paragraphs."""
    duplicates: int = 0
    unreadable: tuple[str, ...] = ()


def _read_corpus(libraries: Sequence[Library], workers: int) -> _Corpus:
    """Read the documents of `libraries`; only the first of duplicates is kept."""
    corpus = _Corpus({library.name: {} for library in libraries})
    modules = [
        (library.name, *module) for library in libraries for module in library.modules
    ]
    documents = _read_modules([path for *_, path in modules], workers)
    seen: set[str] = set()
    for (library, name, _), document in zip(modules, documents, strict=True):
        if document is None:
            corpus.unreadable += (f"{library}: {name}",)
            continue
        new = []
        for paragraph in document:
            key = duplicate_key(paragraph)
            if key not in seen:
                seen.add(key)
                new.append(paragraph)
        corpus.duplicates += len(document) - len(new)
        if new:
            corpus.documents[library][name] = new
    return corpus


def _summarize(
    corpus: _Corpus, texts: dict[str, str], libraries: Sequence[Library]
) -> CorpusSummary:
    digest = hashlib.sha256()
    for name, text in texts.items():
        digest.update(f"{name}\n{text}".encode())
    summaries = {
        library.name: LibrarySummary(
            version=library.version,
            documents=len(corpus.documents[library.name]),
            paragraphs=sum(map(len, corpus.documents[library.name].values())),
            words=len(texts[library.name].split()),
        )
        for library in libraries
    }
    return CorpusSummary(
        documents=sum(x.documents for x in summaries.values()),
        paragraphs=sum(x.paragraphs for x in summaries.values()),
        words=sum(x.words for x in summaries.values()),
        bytes=sum(len(text.encode()) for text in texts.values()),
        duplicates=corpus.duplicates,
        unreadable=corpus.unreadable,
        sha256=digest.hexdigest(),
        libraries=summaries,
    )


def write_corpus(
    directory: str | os.PathLike[str],
    libraries: Sequence[Library] | None = None,
    workers: int = 0,
) -> CorpusSummary:
    """Write the documentation of `libraries` as text files.

    `directory` then holds `NAME.txt` for each library with prose (one paragraph per
    line, a blank line between documents) and `corpus.json`: the summary, and the module
    of each document.

    Args:
        libraries: None: the installed ones.
        workers: number of processes; 0: one per core.

    Raises:
        FileExistsError: `directory` exists and is not empty.
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
