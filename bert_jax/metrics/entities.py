"""Entities in tag sequences, scored by the rules of conlleval.

A tag is `O`, or a prefix of B, I, E, S and an entity type, as `B-LOC`. Sentences are
apart: no entity crosses from one to the next (Tjong Kim Sang & De Meulder 2003).
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Scheme = Literal["IOB1", "IOB2", "IOBES"]
"""How a chunk of words is written in tags (Tjong Kim Sang & Veenstra 1999): IOB2
begins each with B, IOB1 only one right after another of its type; IOBES begins each
with B and ends it with E, and one of a single word is S."""

SCHEMES: tuple[Scheme, ...] = ("IOB2", "IOB1", "IOBES")

_PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}
_MARKED = re.compile("[BIESLU]-.*", re.IGNORECASE | re.DOTALL)


class Chunk(NamedTuple):
    """An entity: its type, its first word, and the one after its last."""

    type: str
    start: int
    end: int


@dataclass(frozen=True)
class ChunkCounts:
    """How many chunks there are, how many were predicted, and how many of them right.

    Precision, recall and F1 are fractions where conlleval prints per cent, and 0 where
    they are 0/0, as there.
    """

    gold: int
    predicted: int
    correct: int

    @property
    def precision(self) -> float:
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.correct / ((self.gold + self.predicted) or 1)


@dataclass(frozen=True)
class EntityScores:
    """Chunks of all types, of each in alphabetical order, and the share of tags right.

    A chunk is right if its type and both its ends are. Tags are compared as they are
    written, so the accuracy alone depends on the scheme.
    """

    overall: ChunkCounts
    by_type: dict[str, ChunkCounts]
    tag_accuracy: float


def chunks(tags: Sequence[str]) -> list[Chunk]:
    """The entities of one sentence in order, whichever scheme its tags are in.

    Ill-formed sequences are read as conlleval reads them: a chunk begins also at an I
    after O or after another type. It knows no S and does not part E from B, so IOBES is
    read by the same rules carried on: B and S begin a chunk, E and S end one, and so
    does whatever begins the next.

    Raises ValueError for a tag that is none.
    """
    found: list[Chunk] = []
    previous, previous_type = "O", ""
    for i, tag in enumerate(tags):
        prefix, type_ = _split(tag)
        if prefix != "O":
            if _begins(previous, previous_type, prefix, type_):
                found.append(Chunk(type_, i, i + 1))
            else:
                found[-1] = Chunk(type_, found[-1].start, i + 1)
        previous, previous_type = prefix, type_
    return found


def write_tags(entities: Sequence[Chunk], num_words: int, scheme: Scheme) -> list[str]:
    """The tags of a sentence of num_words words with these entities, in their order."""
    tags = ["O"] * num_words
    before = Chunk("", 0, 0)
    for entity in entities:
        last = entity.end - 1
        for i in range(entity.start, entity.end):
            tags[i] = f"I-{entity.type}"
        touches = (before.type, before.end) == (entity.type, entity.start)
        if scheme == "IOBES":
            tags[last] = f"E-{entity.type}"
            tags[entity.start] = f"{'S' if entity.start == last else 'B'}-{entity.type}"
        elif scheme == "IOB2" or touches:
            tags[entity.start] = f"B-{entity.type}"
        before = entity
    return tags


def convert_tags(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The same entities in another scheme; ill-formed tags come out well-formed.

    Raises ValueError for a tag that is none.
    """
    return write_tags(chunks(tags), len(tags), scheme)


def detect_scheme(sentences: Sequence[Sequence[str]]) -> Scheme:
    """The scheme that would write the fewest tags of these entities otherwise.

    Of equals the first of SCHEMES: IOB2 if every tag is O. Published files mix them:
    those of the shared task of 2003 are IOB1, with B after O here and there.

    Raises ValueError for a tag that is none.
    """
    others = Counter[Scheme]()
    for tags in sentences:
        for scheme in SCHEMES:
            others[scheme] += len(unlike_scheme(tags, scheme))
    return min(SCHEMES, key=lambda scheme: others[scheme])


def unlike_scheme(tags: Sequence[str], scheme: Scheme) -> list[int]:
    """The numbers of the tags that `scheme` would write otherwise."""
    written = convert_tags(tags, scheme)
    return [i for i, tag in enumerate(tags) if written[i] != tag]


def marks_entities(tags: Iterable[str]) -> bool:
    """Whether tags are of entities, and not plain labels as parts of speech are.

    They are if one has a prefix, of whatever scheme, or if all are O.
    """
    distinct = set(tags)
    return distinct <= {"O"} or any(map(_MARKED.fullmatch, distinct))


def entity_tag(tag: str) -> str:
    """The tag of IOBES that a model's label means: BILOU's and lower-case prefixes are
    read too, and what is no tag, as [PAD] or X, is outside of any entity."""
    prefix, _, type_ = tag.partition("-")
    prefix = _PREFIXES.get(prefix.upper(), "O")
    return f"{prefix}-{type_}" if type_ and prefix != "O" else "O"


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> EntityScores:
    """Scores of predicted tags, sentence by sentence, against the gold tags.

    Gold and predicted tags may be in different schemes.

    Raises ValueError without words, for sentences that differ in number or length, and
    for a tag that is none.
    """
    _check_lengths(gold, predicted)
    wanted, found, right = Counter[str](), Counter[str](), Counter[str]()
    num_words = num_right = 0
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        gold_chunks, predicted_chunks = chunks(gold_tags), chunks(predicted_tags)
        wanted.update(chunk.type for chunk in gold_chunks)
        found.update(chunk.type for chunk in predicted_chunks)
        right.update(chunk.type for chunk in set(gold_chunks) & set(predicted_chunks))
        num_words += len(gold_tags)
        num_right += sum(map(str.__eq__, gold_tags, predicted_tags))
    return EntityScores(
        overall=ChunkCounts(wanted.total(), found.total(), right.total()),
        by_type={
            type_: ChunkCounts(wanted[type_], found[type_], right[type_])
            for type_ in sorted(wanted | found)
        },
        tag_accuracy=num_right / num_words,
    )


def _split(tag: str) -> tuple[str, str]:
    """A tag's prefix and its entity type, which may hold hyphens."""
    prefix, _, type_ = tag.partition("-")
    if tag != "O" and (prefix not in ("B", "I", "E", "S") or not type_):
        bilou = " Write BILOU's L as E and its U as S." * (prefix in ("L", "U"))
        raise ValueError(
            f"{tag!r:.80} is not a tag: it must be O, or B, I, E or S, a hyphen and "
            f"the entity's type, as B-LOC.{bilou}"
        )
    return prefix, type_


def _begins(previous: str, previous_type: str, prefix: str, type_: str) -> bool:
    """Whether a tag that is not O begins a chunk after the previous tag."""
    return prefix in "BS" or previous in "OES" or previous_type != type_


def _check_lengths(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> None:
    if len(gold) != len(predicted):
        raise ValueError(
            f"{len(predicted)} predicted sentences are not the {len(gold)} gold ones."
        )
    for number, (tags, others) in enumerate(zip(gold, predicted, strict=True), 1):
        if len(tags) != len(others):
            raise ValueError(
                f"sentence {number} has {len(others)} predicted tags for its "
                f"{len(tags)} words."
            )
    if not any(gold):
        raise ValueError("There are no words: no score is defined.")
