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
import os
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from etils import epath

from bert_jax.data.duplicates import TextHashes
from bert_jax.data.prose import duplicate_key, paragraphs
from bert_jax.storage.atomic import atomic_directory
from bert_jax.storage.files import JsonObject, write_json
from bert_jax.terminal.processes import WorkerContext, end_with_parent, num_cores

DISTRIBUTIONS = (
    "jax flax optax orbax-checkpoint tensorflow tensorflow-cpu tensorflow-datasets"
    " sentencepiece tokenizers sentencex tyro rich tensorboardX scikit-learn jaxtyping"
    " safetensors pyarrow importlib-resources"
).split()
"""The corpus is made from these and their requirements, as far as installed."""


@dataclasses.dataclass(frozen=True)
class InstalledLibrary:
    """Python itself, or one installed distribution."""

    name: str
    version: str
    modules: tuple[tuple[str, Path], ...]
    """Dotted name and file of each module, sorted by name."""


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


def installed_libraries() -> list[InstalledLibrary]:
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


def make_library(
    name: str, version: str, root: Path, files: Iterable[str]
) -> InstalledLibrary:
    """A library with the `.py` files of `files` as modules, except tests."""
    modules = {
        file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): root
        / file
        for file in files
        if file.endswith(".py") and not _NOT_DOCUMENTATION.search(file)
    }
    return InstalledLibrary(name, version, tuple(sorted(modules.items())))


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
    number = workers or num_cores()
    with ProcessPoolExecutor(number, WorkerContext(), _start_worker) as pool:
        return list(pool.map(read_module, paths, chunksize=32))


def _start_worker() -> None:
    end_with_parent()
    # Syntax trees have no cycles, and the search for them takes a third of the time.
    gc.disable()


def _read_documents(
    libraries: Sequence[InstalledLibrary], workers: int
) -> tuple[dict[str, dict[str, list[str]]], JsonObject]:
    """The paragraphs of each library's modules, and what was left out of them."""
    modules = [
        (library.name, *module) for library in libraries for module in library.modules
    ]
    documents: dict[str, dict[str, list[str]]] = {one.name: {} for one in libraries}
    contents = _read_modules([path for *_, path in modules], workers)
    unreadable, num_duplicates, seen = [], 0, TextHashes()
    for (library, name, _), content in zip(modules, contents, strict=True):
        if content is None:
            unreadable.append(f"{library}: {name}")
            continue
        new = [paragraph for paragraph in content if seen.add(duplicate_key(paragraph))]
        num_duplicates += len(content) - len(new)
        if new:
            documents[library][name] = new
    return documents, {"duplicates": num_duplicates, "unreadable": unreadable}


def _summarize(
    libraries: Sequence[InstalledLibrary],
    documents: dict[str, dict[str, list[str]]],
    texts: dict[str, str],
    left_out: JsonObject,
) -> JsonObject:
    by_library: JsonObject = {
        library.name: {
            "version": library.version,
            "documents": len(documents[library.name]),
            "paragraphs": sum(map(len, documents[library.name].values())),
            "words": len(texts[library.name].split()),
        }
        for library in libraries
    }
    totals = {
        name: sum(counts[name] for counts in by_library.values())
        for name in ("documents", "paragraphs", "words")
    }
    content = "".join(f"{name}\n{text}" for name, text in texts.items())
    return {
        **totals,
        "bytes": sum(len(text.encode()) for text in texts.values()),
        **left_out,
        "sha256": hashlib.sha256(content.encode()).hexdigest(),
        "libraries": by_library,
        "modules": {name: list(modules) for name, modules in documents.items()},
    }


def write_corpus(
    directory: str | os.PathLike[str],
    libraries: Sequence[InstalledLibrary] | None = None,
    workers: int = 0,
) -> JsonObject:
    """Write the documentation of `libraries` as text files.

    `directory` then holds `NAME.txt` for each library with prose (one paragraph per
    line, a blank line between documents) and `corpus.json`.

    Args:
        libraries: None: the installed ones.
        workers: number of processes; 0: one per core.

    Returns:
        The content of `corpus.json`: counts in all and by library, bytes and sha256 of
        the texts, the number of paragraphs that were dropped as `duplicates`, the
        modules that were `unreadable`, and the module of each document.

    Raises:
        FileExistsError: `directory` exists and is not empty.
        ValueError: the libraries hold no prose.
    """
    target = epath.Path(directory).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} is not an empty directory; name another.")
    if libraries is None:
        libraries = installed_libraries()
    documents, left_out = _read_documents(libraries, workers)
    if not any(documents.values()):
        names = ", ".join(library.name for library in libraries)
        raise ValueError(f"No prose in {names}: install them with their sources (.py).")
    texts = {
        name: "\n".join("\n".join([*lines, ""]) for lines in modules.values())
        for name, modules in documents.items()
    }
    summary = _summarize(libraries, documents, texts, left_out)
    with atomic_directory(target) as folder:
        for name, text in texts.items():
            if text:
                (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        write_json(summary, folder / "corpus.json")
    return summary
