"""The demo's classification task: which library is a paragraph from?

Names of libraries are removed from the texts, and no module is in both splits, so that
a library can be recognised only by its style and topics.
"""

import collections
import csv
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from etils import epath

from bert_jax.data.duplicates import TextHashes
from bert_jax.data.prose import duplicate_key
from bert_jax.storage.atomic import atomic_directory

COLUMNS = ("text", "library")
SPLITS = ("train", "validation")
GAP = "…"
"""Replaces each removed name."""

# Names of libraries besides those of their distributions and packages.
_ALIASES = {
    "flax": "nnx linen",
    "huggingface-hub": "hf huggingface",
    "jax": "jnp jsp jaxpr jaxprs jaxlib",
    "numpy": "np",
    "orbax-checkpoint": "ocp",
    "python": "cpython",
    "scikit-learn": "scikit",
    "scipy": "sp",
    "tensorflow": "tf",
    "tensorflow-cpu": "tf",
    "tensorflow-datasets": "tfds",
}
_IN_TWO_WORDS = re.compile(r"\b(hugging|scikit)\s(?=(face|learn)\b)", re.IGNORECASE)
_IDENTIFIER = re.compile(r"\w+(?:[.-]\w+)*")
_VALIDATION_FRACTION = 0.25  # of the modules
_NUM_VALIDATION = 150  # the most validation paragraphs of a library
_MIN_WORDS = 12  # of a paragraph, without names
_LONG = 5  # letters; shorter names are removed only as separate words


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A paragraph with its library and module."""

    text: str
    library: str
    module: str


def library_names(library: str, modules: Iterable[str]) -> set[str]:
    """The names of a library: of its distribution and its packages, and aliases."""
    names = {library, *_ALIASES.get(library, "").split()}
    # Python's own modules have no package in common.
    if library != "python":
        names |= {module.split(".")[0] for module in modules}
    return {name.strip("_").lower() for name in names}


@dataclasses.dataclass(frozen=True)
class RevealingNames:
    """Names that would reveal the library of a paragraph."""

    libraries: frozenset[str]
    """Names of the classes; removed also as parts of identifiers, and long ones inside
    words."""
    modules: frozenset[str]
    """Parts of modules' names, and names of other libraries; removed as words."""

    @functools.cached_property
    def _long(self) -> list[str]:
        letters = {re.sub(r"[\W_]", "", name) for name in self.libraries}
        return [name for name in letters if len(name) >= _LONG]

    def remove_from(self, text: str) -> str:
        """`text` with `GAP` for each name, and for each dotted path that has one."""
        joined = _IN_TWO_WORDS.sub(r"\1", text)
        return _IDENTIFIER.sub(self._gap_for_name, joined)

    def _gap_for_name(self, match: re.Match[str]) -> str:
        word = match[0].lower()
        letters = re.sub(r"[\W_]", "", word)
        reveals = (
            any(name in letters for name in self._long)
            or not self.libraries.isdisjoint(re.split(r"[\W_]", word))
            or not self.modules.isdisjoint(re.split(r"\W", word))
        )
        return GAP if reveals else match[0]


def collect_names(
    modules: Mapping[str, Sequence[str]],
    libraries: Sequence[str],
    paragraphs: Iterable[Paragraph],
) -> RevealingNames:
    """Collect all names that could reveal one of `libraries`.

    Many modules are named by an ordinary word ("array"). Words that at least half of
    the libraries use in their paragraphs are not removed.
    """
    class_names: set[str] = set()
    other_names: set[str] = set()
    for library, library_modules in modules.items():
        names = library_names(library, library_modules)
        class_names |= names if library in libraries else set()
        parts = ".".join(library_modules).split(".")
        other_names |= names | {part.strip("_").lower() for part in parts}
    words: dict[str, set[str]] = {library: set() for library in libraries}
    for paragraph in paragraphs:
        if paragraph.library in words:
            words[paragraph.library] |= set(re.findall(r"\w+", paragraph.text.lower()))
    num_uses = collections.Counter(itertools.chain.from_iterable(words.values()))
    rare = {n for n in other_names - {""} if num_uses[n] < len(libraries) / 2}
    return RevealingNames(frozenset(class_names), frozenset(rare - class_names))


def _hash_to_unit(*texts: str) -> float:
    """A hash of `texts` as a number in [0, 1)."""
    digest = hashlib.blake2b("\n".join(texts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


def _usable(
    paragraphs: Iterable[Paragraph], names: RevealingNames, seen: TextHashes
) -> Iterator[Paragraph]:
    """Yield paragraphs without names, except short ones and those `seen`.

    They are ordered by hash, with the first of each module before any second one.
    """
    by_hash = sorted(
        paragraphs, key=lambda p: _hash_to_unit(p.library, p.module, p.text)
    )
    counts = collections.defaultdict[str, Iterator[int]](itertools.count)
    # A paragraph's key is its rank in its module; equal keys keep their order.
    for paragraph in sorted(by_hash, key=lambda p: next(counts[p.module])):
        text = names.remove_from(paragraph.text)
        num_words = sum(GAP not in word for word in text.split())
        if num_words >= _MIN_WORDS and seen.add(duplicate_key(text)):
            yield Paragraph(text, paragraph.library, paragraph.module)


def _read_paragraphs(
    corpus: Path, modules: Mapping[str, Sequence[str]]
) -> Iterator[Paragraph]:
    for library, names in modules.items():
        if names:
            text = (corpus / f"{library}.txt").read_text(encoding="utf-8")
            documents = text.strip().split("\n\n")
            for module, document in zip(names, documents, strict=True):
                for line in document.split("\n"):
                    yield Paragraph(line, library, module)


def paragraph_origins(
    corpus: str | os.PathLike[str], num_libraries: int = 10, num_training: int = 50
) -> dict[str, list[Paragraph]]:
    """A balanced, deterministic sample of the largest libraries, for each split.

    A quarter of a library's modules is for validation, by a hash of their names. The
    `corpus` is what `write_corpus` wrote; `num_training` is the most paragraphs of a
    library. Raise ValueError if one has no paragraph of twelve words without names.
    """
    modules = json.loads(Path(corpus, "corpus.json").read_text())["modules"]
    paragraphs = list(_read_paragraphs(Path(corpus), modules))
    sizes = collections.Counter(paragraph.library for paragraph in paragraphs)
    libraries = sorted(sizes, key=lambda name: (-sizes[name], name))[:num_libraries]
    names, seen = collect_names(modules, libraries, paragraphs), TextHashes()
    by_split = collections.defaultdict(list)
    for p in paragraphs:
        held_out = _hash_to_unit(p.library, p.module) < _VALIDATION_FRACTION
        by_split[SPLITS[held_out], p.library].append(p)
    origins = {}
    for split, max_count in zip(SPLITS, (num_training, _NUM_VALIDATION), strict=True):
        samples = {}
        for library in libraries:
            usable = _usable(by_split[split, library], names, seen)
            samples[library] = list(itertools.islice(usable, max_count))
        count = min(map(len, samples.values()))
        if not count:
            empty = ", ".join(name for name, sample in samples.items() if not sample)
            raise ValueError(
                f"{empty}: no paragraph has {_MIN_WORDS} words besides names in one of "
                "the two splits; request fewer libraries, or fewer words."
            )
        origins[split] = [p for sample in samples.values() for p in sample[:count]]
    return origins


def write_origins(
    origins: Mapping[str, Sequence[Paragraph]], directory: str | os.PathLike[str]
) -> None:
    """Write the splits atomically as `train.csv` and `validation.csv`."""
    with atomic_directory(epath.Path(directory)) as folder:
        for split, paragraphs in origins.items():
            path = folder / f"{split}.csv"
            with open(path, "w", encoding="utf-8", newline="") as file:
                table = csv.writer(file, lineterminator="\n")
                table.writerow(COLUMNS)
                table.writerows((p.text, p.library) for p in paragraphs)
