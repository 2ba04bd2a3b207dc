"""Scores of tags: conlleval's, accuracy, and baselines without a model."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from bert_jax.metrics.entities import (
    Entity,
    entity_scores,
    extract_entities,
    tag_accuracy,
    write_tags,
)
from bert_jax.tasks.tagging.conll import Sentence, no_tags_message


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


def require_tags(sentence: Sentence) -> tuple[str, ...]:
    """Return the tags of a sentence; raise ValueError if it has none."""
    if sentence.tags is None:
        raise ValueError(no_tags_message(sentence, "there is nothing to score by"))
    return sentence.tags


def baseline(
    train: Sequence[Sentence], validation: Sequence[Sentence]
) -> tuple[str, float]:
    """Return the name and the score of the baseline that a model must beat.

    For entities, the F1 of a dictionary lookup: from left to right, the longest word
    sequence that was an entity in training gets the type it mostly had there (Tjong Kim
    Sang & De Meulder 2003, §3). For plain labels, the accuracy of each word's most
    common label in training; a new word gets the most common label of all words.
    """
    gold = [require_tags(sentence) for sentence in validation]
    is_plain = train[0].scheme is None and train[0].tags is not None
    counts = defaultdict[tuple[str, ...], Counter[str]](Counter)
    for sentence in train:
        tags = require_tags(sentence) if is_plain else sentence.tags or ()
        chunks = [Entity(tag, i, i + 1) for i, tag in enumerate(tags)]
        for type_, start, end in chunks if is_plain else extract_entities(tags):
            counts[sentence.words[start:end]][type_] += 1
    types = {words: own.most_common(1)[0][0] for words, own in counts.items()}
    if is_plain:
        default = sum(counts.values(), Counter[str]()).most_common(1)[0][0]
        words = (sentence.words for sentence in validation)
        labels = [[types.get((word,), default) for word in own] for own in words]
        return "each word's commonest tag", tag_accuracy(gold, labels)
    labels = [
        write_tags(list(_look_up(sentence.words, types)), len(sentence.words), "IOB2")
        for sentence in validation
    ]
    return "training-dictionary lookup", conlleval_scores(gold, labels)["f1"]


def _look_up(
    words: tuple[str, ...], types: dict[tuple[str, ...], str]
) -> Iterator[Entity]:
    """Yield the entities of `types` in a sentence, the longest one at each word."""
    max_words = max(map(len, types), default=0)
    start = 0
    while start < len(words):
        for end in range(min(start + max_words, len(words)), start, -1):
            if words[start:end] in types:
                yield Entity(types[words[start:end]], start, end)
                break
        else:
            end = start + 1
        start = end
