"""Which predicted entity stands for which gold one, and what is wrong with it."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.metrics.entities import Entity


class EntityMatch(NamedTuple):
    """A gold entity and the predicted one that stands for it; one may be missing."""

    gold: Entity | None
    predicted: Entity | None

    @property
    def error(self) -> str:
        """What is wrong, as MUC distinguishes it (Chinchor & Sundheim 1993)."""
        if self.predicted is None:
            return "missed"
        if self.gold is None:
            return "spurious"
        same_type = self.gold.type == self.predicted.type
        if self.gold[1:] == self.predicted[1:]:
            return "correct" if same_type else "type"
        return "boundaries" if same_type else "type and boundaries"

    @property
    def boundaries(self) -> str:
        """How the boundaries of two entities differ: too long, too short or shifted."""
        assert self.gold is not None and self.predicted is not None
        (_, start, end), (_, own_start, own_end) = self.gold, self.predicted
        if own_start <= start and end <= own_end:
            return "too long"
        if start <= own_start and own_end <= end:
            return "too short"
        return "shifted"


def match_entities(
    gold: Sequence[Entity], predicted: Sequence[Entity]
) -> list[EntityMatch]:
    """Match the entities of a sentence, in order; each belongs to one match.

    Entities with the same words are matched, then those that overlap: first the pairs
    of one type, and of these first the pairs with the most words in common.
    """
    pairs = []
    for entity, other in itertools.product(gold, predicted):
        common = min(entity.end, other.end) - max(entity.start, other.start)
        if common > 0:
            is_moved, is_other = entity[1:] != other[1:], entity.type != other.type
            pairs.append(((is_moved, is_other, -common, entity.start), entity, other))
    matches: list[EntityMatch] = []
    in_gold, in_predicted = set(gold), set(predicted)
    for _, entity, other in sorted(pairs, key=lambda pair: pair[0]):
        if entity in in_gold and other in in_predicted:
            matches.append(EntityMatch(entity, other))
            in_gold.remove(entity)
            in_predicted.remove(other)
    matches += [EntityMatch(entity, None) for entity in in_gold]
    matches += [EntityMatch(None, entity) for entity in in_predicted]
    return sorted(matches, key=lambda match: next(filter(None, match))[1:])
