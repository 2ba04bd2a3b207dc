"""Errors in plain labels of words, such as parts of speech."""

import numpy as np

from bert_jax.metrics.confusions import confusion_counts, counts_of_classes
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Prediction, Predictions
from bert_jax.tasks.reporting.analysis import Analysis
from bert_jax.tasks.reporting.by_class import (
    class_scores,
    class_table,
    confusion_section,
    confusions,
)
from bert_jax.tasks.reporting.probabilities import calibration_of, calibration_section
from bert_jax.tasks.reporting.views import Item, MarkedSpan, Passage, Section, spaced
from bert_jax.tasks.reporting.worst import WorstExamples
from bert_jax.tasks.tagging.conll import Sentence
from bert_jax.tasks.tagging.entity_report import MAX_WORDS
from bert_jax.tasks.tagging.scores import require_tags
from bert_jax.tasks.texts.class_report import worst_section


def analyse(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return scores by label, confusions, calibration and worst sentences."""
    labels = task.model.labels
    index = {name: i for i, name in enumerate(labels)}
    pairs = list(zip(predictions.examples, predictions.values, strict=True))
    gold = np.array([index[tag] for s, _ in pairs for tag in require_tags(s)])
    predicted = np.array([index[tag] for _, value in pairs for tag in value["tags"]])
    scores = np.array([word["score"] for _, value in pairs for word in value["words"]])
    counts = confusion_counts(gold, predicted, len(labels))
    worst = WorstExamples()
    for i, (sentence, value) in enumerate(pairs):
        tags = zip(require_tags(sentence), value["tags"], strict=True)
        if wrong := [(own, other) for own, other in tags if own != other]:
            worst.add(float(len(wrong)), i, wrong)
    return {
        "calibration": calibration_of(scores, gold == predicted),
        **class_scores(labels, counts_of_classes(counts)),
        **confusions(labels, counts),
        "num_words": gold.size,
        **worst.listed(lambda i: _entry(pairs[i])),
    }


def _entry(pair: tuple[Sentence, Prediction]) -> JsonObject:
    """Return a sentence as JSON values; a long one from its first error."""
    sentence, value = pair
    tags = list(zip(require_tags(sentence), value["tags"], strict=True))
    is_long = len(tags) > MAX_WORDS
    start = [own != other for own, other in tags].index(True) if is_long else 0
    end = start + MAX_WORDS
    return {
        "where": sentence.where(start),
        "words": list(sentence.words[start:end]),
        "labels": [own for own, _ in tags[start:end]],
        "predictions": [other for _, other in tags[start:end]],
    }


def sections(report: JsonObject) -> list[Section]:
    table = class_table(report, "Scores by label", "label", ("macro", "weighted"))
    note = f"Of {report['num_words']:,} words."
    of = "the predicted label"
    about = "The sentences with the most wrong labels; each is gold → predicted."
    return [
        Section("classes", "Labels", note, [table]),
        confusion_section(report),
        calibration_section(report["calibration"], of, "is right"),
        worst_section(report, about, _item, unit="sentences"),
    ]


def _item(entry: JsonObject) -> Item:
    names = ("words", "labels", "predictions")
    words = list(zip(*(entry[name] for name in names), strict=True))
    wrong = [(gold, predicted) for _, gold, predicted in words if gold != predicted]
    facts = [("wrong labels", f"{len(wrong)} of {len(words)}")]
    spans = [
        MarkedSpan(word)
        if gold == predicted
        else MarkedSpan(word, "wrong", f"{gold} → {predicted}")
        for word, gold, predicted in words
    ]
    return Item(entry["where"], facts, [Passage("words", spaced(spans))], wrong)


ANALYSES = {"tags": Analysis(analyse, sections)}
