"""Scores of tags: conlleval's, accuracy, and those of rules without a model."""

from collections import Counter
from collections.abc import Iterator, Sequence

from bert_jax.metrics.entities import Chunk, chunks, entity_scores, write_tags
from bert_jax.tasks.conll import Sentence


def conlleval_scores(
    records: Sequence[Sentence], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """conlleval's scores of predicted tags, in each file's own scheme."""
    found = entity_scores([require_tags(record) for record in records], predicted)
    return {
        "f1": found.overall.f1,
        "precision": found.overall.precision,
        "recall": found.overall.recall,
        "accuracy": found.tag_accuracy,
    } | {f"f1_{type_}": counts.f1 for type_, counts in found.by_type.items()}


def tag_accuracy(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> float:
    """The fraction of words with the right tag, 0 where there is no word."""
    hits = [
        tag == guess
        for tags, guesses in zip(gold, predicted, strict=True)
        for tag, guess in zip(tags, guesses, strict=True)
    ]
    return sum(hits) / max(len(hits), 1)


def require_tags(record: Sentence) -> tuple[str, ...]:
    """The tags of a sentence.

    Raises:
        ValueError: it has none.
    """
    if record.tags is None:
        raise ValueError(f"{record.path} has no tags; there is nothing to score by.")
    return record.tags


def baseline(
    train: Sequence[Sentence], validation: Sequence[Sentence]
) -> tuple[str, float]:
    """What a model must beat: a dictionary of entities, or of words for plain labels.

    F1 of looking entities up: from each word on, the longest one seen in training with
    the type it mostly had (Tjong Kim Sang & De Meulder 2003, §3). Of plain labels, the
    accuracy of each word's commonest one in training, or of all words if it is new.
    """
    if train[0].scheme is None and train[0].tags is not None:
        gold = [require_tags(record) for record in validation]
        tags = _commonest_tags(train, validation)
        return "each word's commonest tag", tag_accuracy(gold, tags)
    seen: dict[tuple[str, ...], Counter[str]] = {}
    for record in train:
        for chunk in chunks(record.tags or ()):
            words = record.words[chunk.start : chunk.end]
            seen.setdefault(words, Counter())[chunk.type] += 1
    types = {words: counts.most_common(1)[0][0] for words, counts in seen.items()}
    tags = [
        write_tags(list(_look_up(record.words, types)), len(record.words), "IOB2")
        for record in validation
    ]
    return "training-dictionary lookup", conlleval_scores(validation, tags)["f1"]


def _commonest_tags(
    train: Sequence[Sentence], validation: Sequence[Sentence]
) -> list[list[str]]:
    seen: dict[str, Counter[str]] = {}
    for record in train:
        for word, tag in zip(record.words, require_tags(record), strict=True):
            seen.setdefault(word, Counter())[tag] += 1
    tags = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    usual = sum(seen.values(), Counter[str]()).most_common(1)[0][0]
    return [[tags.get(word, usual) for word in each.words] for each in validation]


def _look_up(
    words: tuple[str, ...], types: dict[tuple[str, ...], str]
) -> Iterator[Chunk]:
    longest = max(map(len, types), default=0)
    start = 0
    while start < len(words):
        for end in range(min(start + longest, len(words)), start, -1):
            if words[start:end] in types:
                yield Chunk(types[words[start:end]], start, end)
                break
        else:
            end = start + 1
        start = end
