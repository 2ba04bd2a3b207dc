"""Which library is a paragraph from? A small task that the demo's corpus holds ready.

The libraries' names are taken out of the texts, and no module is on both sides of the
split, so that what is left to go by is how each library talks, and of what.
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
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bert_jax.demo.prose import fold

COLUMNS = ("text", "library")
PARTS = ("train", "validation")
GAP = "…"
"""Stands wherever a name was."""

# What a library is called beside its own names and those it is imported by.
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
_VALIDATION_SHARE = 0.25  # of the modules
_LONG = 5  # letters; shorter names are looked for as words of their own alone


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A paragraph, and where it is from."""

    text: str
    library: str
    module: str


@dataclasses.dataclass(frozen=True)
class Origins:
    """The two parts of the task."""

    libraries: tuple[str, ...]
    train: tuple[Paragraph, ...]
    validation: tuple[Paragraph, ...]


def read_modules(corpus: Path) -> dict[str, list[str]]:
    """The modules of each library, in the order of its documents."""
    summary = json.loads((corpus / "corpus.json").read_text())
    modules: dict[str, list[str]] = summary["modules"]
    return modules


def read_paragraphs(corpus: Path) -> list[Paragraph]:
    """The paragraphs that `write_corpus` wrote, in its order."""
    found = []
    for library, modules in read_modules(corpus).items():
        if modules:
            text = (corpus / f"{library}.txt").read_text(encoding="utf-8")
            documents = text.strip().split("\n\n")
            for module, document in zip(modules, documents, strict=True):
                for line in document.split("\n"):
                    found.append(Paragraph(line, library, module))
    return found


def names_of(library: str, modules: Iterable[str]) -> set[str]:
    """What a library is called: its own name, those it is imported by, its aliases."""
    names = {library, *_ALIASES.get(library, "").split()}
    # Python's own modules have no package in common; each is called by its own name.
    if library != "python":
        names |= {module.split(".")[0] for module in modules}
    return {name.strip("_").lower() for name in names}


@dataclasses.dataclass(frozen=True)
class Names:
    """What gives a library away."""

    libraries: frozenset[str]
    """What the libraries to tell apart are called; taken out everywhere, a long name
    inside of words too."""
    modules: frozenset[str]
    """Parts of modules' names, and names of other libraries; taken out as words."""

    @functools.cached_property
    def _long(self) -> list[str]:
        squeezed = {re.sub(r"[\W_]", "", name) for name in self.libraries}
        return [name for name in squeezed if len(name) >= _LONG]

    def without(self, text: str) -> str:
        """`text` with `GAP` for each name, and for each path of which one is part."""
        joined = _IN_TWO_WORDS.sub(r"\1", text)
        return _IDENTIFIER.sub(self._gap_for_name, joined)

    def _gap_for_name(self, found: re.Match[str]) -> str:
        word = found[0].lower()
        squeezed = re.sub(r"[\W_]", "", word)
        told = (
            any(name in squeezed for name in self._long)
            or not self.libraries.isdisjoint(re.split(r"[\W_]", word))
            or not self.modules.isdisjoint(re.split(r"\W", word))
        )
        return GAP if told else found[0]


def names_in(
    modules: Mapping[str, Sequence[str]],
    libraries: Sequence[str],
    paragraphs: Iterable[Paragraph],
) -> Names:
    """All names that could give one of `libraries` away.

    Many modules have an ordinary word for a name ("array"): what at least half of the
    libraries use in their paragraphs stays in.
    """
    chosen: set[str] = set()
    others: set[str] = set()
    for library, names in modules.items():
        called = names_of(library, names)
        chosen |= called if library in libraries else set()
        others |= called
        for name in names:
            others |= {part.strip("_").lower() for part in name.split(".")}
    used: dict[str, set[str]] = {library: set() for library in libraries}
    for paragraph in paragraphs:
        if paragraph.library in used:
            used[paragraph.library] |= set(re.findall(r"\w+", paragraph.text.lower()))
    told = {
        name
        for name in others - {""}
        if sum(name in words for words in used.values()) < len(libraries) / 2
    }
    return Names(frozenset(chosen), frozenset(told - chosen))


def _draw(*what: str) -> float:
    """A number in [0, 1) that belongs to `what`."""
    digest = hashlib.blake2b("\n".join(what).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


def _in_turn(paragraphs: Iterable[Paragraph]) -> list[Paragraph]:
    """In drawn order, but each module's first before any module's second."""
    drawn = [(_draw(each.library, each.module, each.text), each) for each in paragraphs]
    counts = collections.defaultdict[str, Iterator[int]](itertools.count)
    ranked = [
        (next(counts[each.module]), place, each)
        for place, each in sorted(drawn, key=lambda pair: pair[0])
    ]
    return [each for *_, each in sorted(ranked, key=lambda triple: triple[:2])]


@dataclasses.dataclass(frozen=True)
class _Sampling:
    names: Names
    fewest_words: int
    seen: set[str] = dataclasses.field(default_factory=set)
    """What no later paragraph may repeat."""

    def usable(self, paragraphs: Iterable[Paragraph]) -> Iterator[Paragraph]:
        """Without their names, those that are long enough and were not there before."""
        for paragraph in paragraphs:
            text = self.names.without(paragraph.text)
            words = sum(GAP not in word for word in text.split())
            folded = fold(text)
            if words >= self.fewest_words and folded not in self.seen:
                self.seen.add(folded)
                yield dataclasses.replace(paragraph, text=text)

    def balanced(
        self, sides: Mapping[str, list[Paragraph]], most: int
    ) -> tuple[Paragraph, ...]:
        """As many paragraphs of each library, at most `most`.

        Raises:
            ValueError: there are none of some library.
        """
        found = {
            library: list(itertools.islice(self.usable(_in_turn(side)), most))
            for library, side in sides.items()
        }
        number = min(map(len, found.values()))
        if not number:
            poor = ", ".join(name for name, side in found.items() if not side)
            raise ValueError(
                f"{poor}: no paragraph has {self.fewest_words} words beside names in "
                "one of the two parts; ask for fewer libraries, or fewer words."
            )
        return tuple(each for side in found.values() for each in side[:number])


def paragraph_origins(
    corpus: str | os.PathLike[str],
    num_libraries: int = 10,
    num_training: int = 50,
    num_validation: int = 150,
    fewest_words: int = 12,
) -> Origins:
    """As many paragraphs of each of the largest libraries, always the same.

    A quarter of a library's modules is for validation, by a hash of their names.

    Args:
        corpus: directory that `write_corpus` made.
        num_libraries: those with the most paragraphs.
        num_training: paragraphs of each library to learn from, where all have as many.
        num_validation: paragraphs of each library to score on, likewise.
        fewest_words: shorter paragraphs are left out; names do not count.

    Raises:
        ValueError: some library has no such paragraph.
    """
    directory = Path(corpus)
    modules, paragraphs = read_modules(directory), read_paragraphs(directory)
    sizes = collections.Counter(each.library for each in paragraphs)
    libraries = sorted(sizes, key=lambda name: (-sizes[name], name))[:num_libraries]
    sides: list[dict[str, list[Paragraph]]] = [
        {library: [] for library in libraries} for _ in PARTS
    ]
    for each in paragraphs:
        if each.library in libraries:
            held_out = _draw(each.library, each.module) < _VALIDATION_SHARE
            sides[held_out][each.library].append(each)
    sampling = _Sampling(names_in(modules, libraries, paragraphs), fewest_words)
    return Origins(
        tuple(libraries),
        train=sampling.balanced(sides[0], num_training),
        validation=sampling.balanced(sides[1], num_validation),
    )


def write_origins(origins: Origins, directory: str | os.PathLike[str]) -> None:
    """Write the two parts as `train.csv` and `validation.csv`, whole or not at all."""
    target = Path(directory).absolute()
    temporary = target.with_name(target.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for part in PARTS:
        path = temporary / f"{part}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(COLUMNS)
            for paragraph in getattr(origins, part):
                table.writerow([paragraph.text, paragraph.library])
    temporary.rename(target)
