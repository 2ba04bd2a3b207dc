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
    where `pydoc_data.topics` and NumPy's `add_newdoc` keep documentation. Raise
    SyntaxError, ValueError or RecursionError if `source` is not a Python module.
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


def _read_texts(
    libraries: Sequence[InstalledLibrary], workers: int
) -> tuple[dict[str, str], JsonObject]:
    """The text of each library, and the content of `corpus.json`."""
    paths = [path for library in libraries for _, path in library.modules]
    contents = iter(_read_modules(paths, workers))
    texts: dict[str, str] = {}
    counts: dict[str, JsonObject] = {}
    modules: dict[str, list[str]] = {}
    unreadable, num_duplicates, seen = [], 0, TextHashes()
    for library in libraries:
        documents = {}
        for name, _ in library.modules:
            if (content := next(contents)) is None:
                unreadable.append(f"{library.name}: {name}")
                continue
            new = [line for line in content if seen.add(duplicate_key(line))]
            num_duplicates += len(content) - len(new)
            if new:
                documents[name] = new
        text = "\n".join("\n".join([*lines, ""]) for lines in documents.values())
        texts[library.name], modules[library.name] = text, list(documents)
        counts[library.name] = {
            "version": library.version,
            "documents": len(documents),
            "paragraphs": sum(map(len, documents.values())),
            "words": len(text.split()),
        }
    joined = "".join(f"{name}\n{text}" for name, text in texts.items())
    return texts, {
        **{
            name: sum(values[name] for values in counts.values())
            for name in ("documents", "paragraphs", "words")
        },
        "bytes": sum(len(text.encode()) for text in texts.values()),
        "duplicates": num_duplicates,
        "unreadable": unreadable,
        "sha256": hashlib.sha256(joined.encode()).hexdigest(),
        "libraries": counts,
        "modules": modules,
    }


def write_corpus(
    directory: str | os.PathLike[str],
    libraries: Sequence[InstalledLibrary] | None = None,
    workers: int = 0,
) -> JsonObject:
    """Write the documentation of `libraries`, by default the installed ones, as text.

    `directory` then holds `NAME.txt` for each library with prose (one paragraph per
    line, a blank line between documents) and `corpus.json`, whose content is returned:
    counts in all and by library, bytes and sha256 of the texts, the number of
    paragraphs that were dropped as `duplicates`, the modules that were `unreadable`,
    and the module of each document. There are as many processes as `workers`; 0: one
    per core.

    Raise FileExistsError if `directory` is not empty, or ValueError if there is no
    prose.
    """
    target = epath.Path(directory).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} is not an empty directory; name another.")
    if libraries is None:
        libraries = installed_libraries()
    texts, summary = _read_texts(libraries, workers)
    if not any(texts.values()):
        names = ", ".join(library.name for library in libraries)
        raise ValueError(f"No prose in {names}: install them with their sources (.py).")
    with atomic_directory(target) as folder:
        for name, text in texts.items():
            if text:
                (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        write_json(summary, folder / "corpus.json")
    return summary
