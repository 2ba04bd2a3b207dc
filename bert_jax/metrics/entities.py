"""Entities in tag sequences, scored by the rules of the conlleval script.

A tag is `O`, or a prefix (B, I, E or S), a hyphen and an entity type, as in `B-LOC`. No
entity crosses from one sentence to the next (Tjong Kim Sang & De Meulder 2003).
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from bert_jax.metrics.match_counts import MatchCounts

Scheme = Literal["IO", "IOB1", "IOB2", "IOBES"]
"""How entities are written as tags (Tjong Kim Sang & Veenstra 1999). IOB2 begins each
entity with B, IOB1 only one right after another of its type, and IO none. IOBES begins
each with B and ends it with E; an entity of a single word is S."""

SCHEMES: tuple[Scheme, ...] = ("IOB2", "IOB1", "IOBES")
"""Those of files; one in IO is as well in IOB1."""

_BILOU = " Write BILOU's L as E and its U as S."
_REMEDIES = {"L": _BILOU, "U": _BILOU, "M": " Write BMES's M as I."}
_PREFIXES = {"B": "B", "I": "I", "M": "I", "E": "E", "S": "S", "L": "E", "U": "S"}
_MARKED = re.compile("[BIESLU]-.*", re.IGNORECASE | re.DOTALL)


class Entity(NamedTuple):
    """An entity: its type, and the half-open range of its words."""

    type: str
    start: int
    end: int


@dataclass(frozen=True)
class EntityScores:
    """Counts of all entities and of each type (sorted), and the fraction of equal tags.

    An entity is correct if its type and both its ends are. Tags are compared literally,
    so only `tag_accuracy` depends on the scheme.
    """

    overall: MatchCounts
    by_type: dict[str, MatchCounts]
    tag_accuracy: float


def extract_entities(tags: Sequence[str]) -> list[Entity]:
    """Extract the entities of one sentence, in order, from tags of any scheme.

    Ill-formed sequences are read as by conlleval: an I after O, or after another type,
    begins an entity too. conlleval has no S and does not distinguish E from B, so for
    IOBES its rules are extended: B and S begin an entity, and E and S end one. Raise
    ValueError if a tag is invalid.
    """
    entities: list[Entity] = []
    previous, previous_type = "O", ""
    for i, tag in enumerate(tags):
        prefix, type_ = _split(tag)
        if prefix != "O":
            if prefix in "BS" or previous in "OES" or previous_type != type_:
                entities.append(Entity(type_, i, i + 1))
            else:
                entities[-1] = Entity(type_, entities[-1].start, i + 1)
        previous, previous_type = prefix, type_
    return entities


def write_tags(entities: Sequence[Entity], num_words: int, scheme: Scheme) -> list[str]:
    """Write the entities of a sentence, given in order, as one tag per word."""
    tags = ["O"] * num_words
    previous = Entity("", 0, 0)
    for entity in entities:
        last = entity.end - 1
        for i in range(entity.start, entity.end):
            tags[i] = f"I-{entity.type}"
        adjacent = (previous.type, previous.end) == (entity.type, entity.start)
        if scheme == "IOBES":
            tags[last] = f"E-{entity.type}"
            tags[entity.start] = f"{'S' if entity.start == last else 'B'}-{entity.type}"
        elif scheme == "IOB2" or (scheme == "IOB1" and adjacent):
            tags[entity.start] = f"B-{entity.type}"
        previous = entity
    return tags


def convert_tags(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Return well-formed tags of `scheme`; raise ValueError if a tag is invalid."""
    return write_tags(extract_entities(tags), len(tags), scheme)


def detect_scheme(sentences: Sequence[Sequence[str]]) -> Scheme:
    """Return the scheme in which the fewest of the tags would be written differently.

    If several schemes are equal, the first in SCHEMES. Published files are not
    consistent: those of the shared task of 2003 are IOB1, with a few B after O. Raise
    ValueError if a tag is invalid.
    """
    return min(
        SCHEMES, key=lambda one: sum(len(mismatched_tags(s, one)) for s in sentences)
    )


def mismatched_tags(tags: Sequence[str], scheme: Scheme) -> list[int]:
    """The indices of the tags that are written differently in `scheme`."""
    written = convert_tags(tags, scheme)
    return [i for i, tag in enumerate(tags) if written[i] != tag]


def are_entity_tags(tags: Iterable[str]) -> bool:
    """Whether these are tags of entities, and not plain labels such as parts of speech.

    True if one has a prefix of any scheme, or if all are O.
    """
    distinct = set(tags)
    return distinct <= {"O"} or any(map(_MARKED.fullmatch, distinct))


def to_iobes_tag(tag: str) -> str:
    """Convert a model's label to an IOBES tag.

    Prefixes of BILOU and BMES and lower-case ones are accepted; a label that is not a
    tag, such as [PAD] or X, becomes O.
    """
    prefix, _, type_ = tag.partition("-")
    prefix = _PREFIXES.get(prefix.upper(), "O")
    return f"{prefix}-{type_}" if type_ and prefix != "O" else "O"


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> EntityScores:
    """Score the predicted tags of sentences against the gold tags.

    Gold and predicted tags may be in different schemes. Raise ValueError if there are
    no words, sentences differ in number or length, or a tag is invalid.
    """
    _check_lengths(gold, predicted)
    in_gold, in_predicted = (
        {(i, one) for i, tags in enumerate(own) for one in extract_entities(tags)}
        for own in (gold, predicted)
    )
    # The numbers of gold entities, of predicted ones, and of correct ones, by type.
    of_gold, of_predicted, correct = (
        Counter(entity.type for _, entity in entities)
        for entities in (in_gold, in_predicted, in_gold & in_predicted)
    )
    return EntityScores(
        overall=MatchCounts(of_gold.total(), of_predicted.total(), correct.total()),
        by_type={
            type_: MatchCounts(of_gold[type_], of_predicted[type_], correct[type_])
            for type_ in sorted(of_gold | of_predicted)
        },
        tag_accuracy=tag_accuracy(gold, predicted),
    )


def conlleval_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return conlleval's scores of the predicted tags of sentences."""
    scores = entity_scores(gold, predicted)
    return {
        "f1": scores.overall.f1,
        "precision": scores.overall.precision,
        "recall": scores.overall.recall,
        "accuracy": scores.tag_accuracy,
        **{f"f1_{type_}": counts.f1 for type_, counts in scores.by_type.items()},
    }


def tag_accuracy(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> float:
    """Return the fraction of words with the right tag; 0 if there are no words."""
    hits = [
        tag == guess
        for tags, guesses in zip(gold, predicted, strict=True)
        for tag, guess in zip(tags, guesses, strict=True)
    ]
    return sum(hits) / max(len(hits), 1)


def _split(tag: str) -> tuple[str, str]:
    """The prefix of a tag and its entity type, which may contain hyphens."""
    prefix, _, type_ = tag.partition("-")
    if tag != "O" and (prefix not in ("B", "I", "E", "S") or not type_):
        remedy = _REMEDIES.get(prefix, "")
        raise ValueError(
            f"{tag!r:.80} is not a tag: it must be O, or B, I, E or S, a hyphen and "
            f"the entity's type, as B-LOC.{remedy}"
        )
    return prefix, type_


def _check_lengths(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> None:
    if len(gold) != len(predicted):
        raise ValueError(
            f"{len(predicted)} sentences are predicted, but {len(gold)} are gold."
        )
    pairs = zip(gold, predicted, strict=True)
    for number, (gold_tags, predicted_tags) in enumerate(pairs, 1):
        if len(gold_tags) != len(predicted_tags):
            raise ValueError(
                f"sentence {number} has {len(predicted_tags)} predicted tags for its "
                f"{len(gold_tags)} words."
            )
    if not any(gold):
        raise ValueError("There are no words: no score is defined.")
