"""Token classification: a tag for each word, and the entities that the tags spell."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.data.examples import Examples
from bert_jax.metrics.entities import (
    Entity,
    Scheme,
    convert_tags,
    extract_entities,
    mismatched_tags,
    to_iobes_tag,
)
from bert_jax.model.losses import Sum, cross_entropy
from bert_jax.tasks.conll import Sentence, from_row, read_sentences, write_sentences
from bert_jax.tasks.files import part_file
from bert_jax.tasks.ner_rows import encode, scheme_of, sentence_of
from bert_jax.tasks.ner_scores import baseline, scores_of, tag_accuracy, tags_of
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
        return from_row(row, tagged=False)
    return sentence_of(text_of(row, *(config.text_columns[:1] or ("text",))))


def labels(records: Sequence[Sentence], config: ExamplesConfig) -> tuple[str, ...]:
    """`O`, then the other tags in training, sorted; or `config.labels`.

    In the file's scheme, but for IOB1: that is learned as IOB2, in which a tag does not
    hang on the one before. Plain labels are sorted, O among them.
    """
    first = records[0]
    if first.tags is None:
        raise ValueError(
            f"{first.path} has no tags; nothing can be learned from words alone."
        )
    if config.labels:
        return config.labels
    if first.scheme is None:
        return _plain_labels(records)
    scheme: Scheme = "IOBES" if first.scheme == "IOBES" else "IOB2"
    tags = {tag for record in records for tag in record.tags_in(scheme)} - {"O"}
    if not tags:
        raise ValueError(
            f"{first.path} has no entity: every tag is O; nothing can be learned."
        )
    return ("O", *sorted(tags))


def _plain_labels(records: Sequence[Sentence]) -> tuple[str, ...]:
    found = sorted({tag for record in records for tag in record.tags or ()})
    if len(found) < 2:
        raise ValueError(
            f"{records[0].path}: every tag is {found[0]!r}; nothing can be learned."
        )
    return tuple(found)


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
                names = ", ".join(model.labels)
                raise ValueError(
                    f"{record.where(i)}: tag {was!r}{means} is none of the model's: "
                    f"{names}. Mend it, or train on a file with it."
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
    of its tags. Of a model of plain labels, `words` instead, which are the same of each
    word, with its `tag` for a type.
    """
    tags = [[model.labels[0]] * len(record.words) for record in records]
    probabilities = [[0.0] * len(record.words) for record in records]
    for example, (number, output) in enumerate(
        zip(examples.record, outputs, strict=True)
    ):
        words = examples.token_values("word", example)
        for place in np.flatnonzero(words >= 0):
            word = words[place]
            tags[number][word] = model.labels[output["tag"][place]]
            probabilities[number][word] = float(output["probability"][place])
    parts = _words if scheme_of(model) is None else _entities
    return [
        {"tags": tags[i]} | parts(record, tags[i], probabilities[i])
        for i, record in enumerate(records)
    ]


def _entities(
    record: Sentence, tags: Sequence[str], probabilities: Sequence[float]
) -> Prediction:
    found = extract_entities([to_iobes_tag(tag) for tag in tags])
    return {"entities": [_entity(record, chunk, probabilities) for chunk in found]}


def _words(
    record: Sentence, tags: Sequence[str], probabilities: Sequence[float]
) -> Prediction:
    words = []
    for i, tag in enumerate(tags):
        word = _entity(record, Entity(tag, i, i + 1), probabilities)
        words.append({"tag": word.pop("type")} | word)
    return {"words": words}


def _entity(
    record: Sentence, chunk: Entity, probabilities: Sequence[float]
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
    tags, and each type's `f1_TYPE`; of plain labels `accuracy` alone."""
    predicted = _written_tags(records, predictions, model)
    if scheme_of(model) is None:
        return {"accuracy": tag_accuracy([tags_of(r) for r in records], predicted)}
    return scores_of(records, predicted)


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


def _written_tags(
    records: Sequence[Sentence], predictions: Sequence[Prediction], model: BertConfig
) -> list[list[str]]:
    """The predicted tags in each file's own scheme.

    What the model's scheme is needs no change, and gets none: the rules of conlleval
    cover ill-formed tags.
    """
    own = scheme_of(model)
    if own is None:
        return [prediction["tags"] for prediction in predictions]
    read = [[to_iobes_tag(tag) for tag in each["tags"]] for each in predictions]
    return [
        tags if record.scheme in (None, own) else convert_tags(tags, record.scheme)
        for record, tags in zip(records, read, strict=True)
    ]


def notices(
    records: Sequence[Sentence], examples: Examples, config: ExamplesConfig
) -> list[str]:
    """Which tags are not of the file's scheme, and how many sentences were spread."""
    spread = int((np.bincount(examples.record) > 1).sum())
    where = f"rows of {config.max_length} tokens: {spread} of {len(records)} sentences"
    lines = [f"spread over several {where}"] * (spread > 0)
    return _tag_notices(records) + lines


def _tag_notices(records: Sequence[Sentence]) -> list[str]:
    first = next((record for record in records if record.tags), None)
    if first is None:
        return []
    if first.scheme is None:
        return [f"{first.path}: plain labels, not entities; scored by accuracy"]
    unlike = [
        (record, i)
        for record in records
        if record.tags and record.scheme
        for i in mismatched_tags(record.tags, record.scheme)
    ]
    if not unlike:
        return []
    record, i = unlike[0]
    total = sum(len(record.words) for record in records)
    return [
        f"{record.path}: {len(unlike)} of {total} tags are not as {record.scheme} has "
        f"them, and are read as conlleval reads them; the first is "
        f"{(record.tags or ())[i]!r} in line {record.line_of(i)}"
    ]


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
