"""Token classification: a tag for each word, and the entities that the tags spell."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.data.examples import Examples
from bert_jax.entity_metrics import (
    Chunk,
    Scheme,
    chunks,
    convert_tags,
    entity_scores,
    write_tags,
)
from bert_jax.losses import Sum, cross_entropy
from bert_jax.tasks.conll import Sentence, from_row, read_sentences, write_sentences
from bert_jax.tasks.files import part_file
from bert_jax.tasks.ner_rows import encode, scheme_of, sentence_of
from bert_jax.tasks.problem import Outputs, Prediction, Problem, Rows
from bert_jax.tasks.tables import Row, text_of

PUBLISHED = (
    ("train.txt", "valid.txt", "test.txt"),
    ("train.txt", "dev.txt", "test.txt"),
    ("eng.train", "eng.testa", "eng.testb"),
    ("train.conll", "dev.conll", "test.conll"),
    ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
    ("train.jsonl", "validation.jsonl", "test.jsonl"),
)
"""Names of the training, validation and test file that data sets come under."""


def read(name: str, config: ExamplesConfig) -> list[Sentence]:
    """As `Problem.read`; the formats are those of `conll.read_sentences`."""
    return read_sentences(part_file(name, config.path, PUBLISHED))


def record(row: Row, config: ExamplesConfig) -> Sentence:
    """As `Problem.record`: a text, in `text` or the column that is named, or `tokens`.

    The entities of a text have their places in it; those of tokens count these.
    """
    if "tokens" in row.values:
        return from_row(row)
    return sentence_of(text_of(row, *(config.text_columns[:1] or ("text",))))


def labels(records: Sequence[Sentence], config: ExamplesConfig) -> tuple[str, ...]:
    """`O`, then the other tags in training, sorted; or `config.labels`.

    In the file's scheme, but for IOB1: that is learned as IOB2, in which a tag does not
    hang on the one before.
    """
    first = records[0]
    if first.tags is None:
        raise ValueError(
            f"{first.path} has no tags; nothing can be learned from words alone."
        )
    if config.labels:
        return config.labels
    scheme: Scheme = "IOBES" if first.scheme == "IOBES" else "IOB2"
    tags = {tag for record in records for tag in record.tags_in(scheme)} - {"O"}
    if not tags:
        raise ValueError(
            f"{first.path} has no entity: every tag is O; nothing can be learned."
        )
    return ("O", *sorted(tags))


def check(records: Sequence[Sentence], model: BertConfig, path: str) -> None:
    """Raise ValueError where a tag is none that the model has learned."""
    scheme = scheme_of(model)
    for record in records:
        if record.tags is None:
            continue
        for i, tag in enumerate(record.tags_in(scheme)):
            if tag not in model.labels:
                was = record.tags[i]
                means = "" if tag == was else f" ({tag} in {scheme})"
                raise ValueError(
                    f"{record.where(i)}: tag {was!r}{means} is none of the model's: "
                    f"{', '.join(model.labels)}. Mend it, or train on a file with it."
                )


def loss(model: BertConfig, scores: Float[Array, "B T C"], rows: Rows) -> Sum:
    """Cross-entropy in nats over the tokens that bear a tag, and their number."""
    labels = rows["label"]
    weights = (labels >= 0).astype(jnp.float32)
    return cross_entropy(scores, jnp.maximum(labels, 0), weights)


def outputs(
    model: BertConfig, scores: Float[Array, "B T C"], rows: Rows
) -> dict[str, jax.Array]:
    """`tag` int32 [B, T], the number of the likeliest, and its `probability` [B, T]."""
    return {
        "tag": jnp.argmax(scores, axis=-1).astype(jnp.int32),
        "probability": jnp.max(jax.nn.softmax(scores), axis=-1),
    }


def predict(
    records: Sequence[Sentence],
    examples: Examples,
    outputs: Sequence[Outputs],
    model: BertConfig,
    config: ExamplesConfig,
) -> list[Prediction]:
    """`tags`, one of the model's a word, and the `entities` that they spell.

    An entity is {type, text, start, end, score}: its first word and the one after its
    last, or of plain text its place in characters; the score is the mean probability
    of its tags.
    """
    tags = [["O"] * len(record.words) for record in records]
    probabilities = [[0.0] * len(record.words) for record in records]
    for example, (number, output) in enumerate(
        zip(examples.record, outputs, strict=True)
    ):
        words = examples.token_values("word", example)
        for place in np.flatnonzero(words >= 0):
            word = words[place]
            tags[number][word] = model.labels[output["tag"][place]]
            probabilities[number][word] = float(output["probability"][place])
    return [
        {
            "tags": tags[i],
            "entities": [
                _entity(record, chunk, probabilities[i]) for chunk in chunks(tags[i])
            ],
        }
        for i, record in enumerate(records)
    ]


def _entity(
    record: Sentence, chunk: Chunk, probabilities: Sequence[float]
) -> dict[str, Any]:
    start, end = chunk.start, chunk.end
    text = " ".join(record.words[start:end])
    score = sum(probabilities[start:end]) / (end - start)
    if record.offsets:
        start, end = record.offsets[start][0], record.offsets[end - 1][1]
        text = record.text[start:end]
    return {
        "type": chunk.type,
        "text": text,
        "start": start,
        "end": end,
        "score": score,
    }


def score(
    records: Sequence[Sentence],
    predictions: Sequence[Prediction],
    model: BertConfig,
    config: ExamplesConfig,
) -> dict[str, float]:
    """conlleval's scores: of entities `f1`, `precision`, `recall`, the `accuracy` of
    tags, and each type's `f1_TYPE`."""
    return _scores(records, _written_tags(records, predictions, model))


def write(
    records: Sequence[Sentence],
    predictions: Sequence[Prediction],
    model: BertConfig,
    config: ExamplesConfig,
    directory: Path,
) -> list[str]:
    """Write predictions.txt: the file's columns, and a last one with the predicted tag,
    in the file's own scheme; see `conll.write_sentences`."""
    name = "predictions.txt"
    write_sentences(
        records, _written_tags(records, predictions, model), directory / name
    )
    return [name]


def baseline(
    train: Sequence[Sentence], validation: Sequence[Sentence]
) -> tuple[str, float]:
    """F1 of looking entities up: from each word on, the longest one seen in training
    with the type it mostly had (Tjong Kim Sang & De Meulder 2003, §3)."""
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
    return "training-dictionary lookup", _scores(validation, tags)["f1"]


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


def _scores(
    records: Sequence[Sentence], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    gold = [_tags_of(record) for record in records]
    found = entity_scores(gold, predicted)
    return {
        "f1": found.overall.f1,
        "precision": found.overall.precision,
        "recall": found.overall.recall,
        "accuracy": found.tag_accuracy,
    } | {f"f1_{type_}": counts.f1 for type_, counts in found.by_type.items()}


def _tags_of(record: Sentence) -> tuple[str, ...]:
    if record.tags is None:
        raise ValueError(f"{record.path} has no tags; there is nothing to score by.")
    return record.tags


def _written_tags(
    records: Sequence[Sentence], predictions: Sequence[Prediction], model: BertConfig
) -> list[list[str]]:
    """The predicted tags in each file's own scheme.

    What the model's scheme is needs no change, and gets none: the rules of conlleval
    cover ill-formed tags.
    """
    same = (None, scheme_of(model))
    return [
        prediction["tags"]
        if record.scheme in same
        else convert_tags(prediction["tags"], record.scheme)
        for record, prediction in zip(records, predictions, strict=True)
    ]


def notices(
    records: Sequence[Sentence], examples: Examples, config: ExamplesConfig
) -> list[str]:
    """How many sentences were spread over several rows."""
    spread = int((np.bincount(examples.record) > 1).sum())
    where = f"rows of {config.max_length} tokens: {spread} of {len(records)} sentences"
    return [f"spread over several {where}"] * (spread > 0)


TOKEN_CLASSIFICATION = Problem(
    head="token_classification",
    read=read,
    labels=labels,
    check=check,
    encode=encode,
    loss=loss,
    outputs=outputs,
    predict=predict,
    score=score,
    write=write,
    baseline=baseline,
    record=record,
    labelled=lambda record: record.tags is not None,
    notices=notices,
)
