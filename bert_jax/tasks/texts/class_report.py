"""Errors in the class of a text, or of a pair of texts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bert_jax.metrics.confusions import confusion_counts, counts_of_classes
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.pairs.examples import PairExample
from bert_jax.tasks.predictions import Predictions
from bert_jax.tasks.reporting.analysis import Analysis
from bert_jax.tasks.reporting.by_class import (
    class_scores,
    class_table,
    confusion_section,
    confusions,
)
from bert_jax.tasks.reporting.probabilities import (
    calibration_of,
    calibration_section,
    threshold_of,
    threshold_section,
)
from bert_jax.tasks.reporting.views import Examples, Item, MarkedSpan, Passage, Section
from bert_jax.tasks.reporting.worst import WorstExamples, shortened
from bert_jax.tasks.texts.examples import TextExample

LEAST_PROBABILITY = float(np.finfo(np.float32).tiny)
"""A smaller probability is 0 in float32, and its loss would be infinite."""


def analyse(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return scores by class, confusions, calibration, thresholds, worst examples."""
    labels, values = task.model.labels, predictions.values
    index = {name: i for i, name in enumerate(labels)}
    gold = np.array([index[str(example.label)] for example in predictions.examples])
    predicted = np.array([index[value["label"]] for value in values])

    def probabilities(classes: Int[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        pairs = zip(values, classes.tolist(), strict=True)
        return np.array([value["probabilities"][labels[i]] for value, i in pairs])

    of_predicted, of_gold = probabilities(predicted), probabilities(gold)
    counts = confusion_counts(gold, predicted, len(labels))
    common = int(counts.sum(axis=1).argmax())
    report = {
        "calibration": calibration_of(of_predicted, gold == predicted),
        **class_scores(labels, counts_of_classes(counts)),
        "commonest_class": {
            "label": labels[common],
            "fraction": float(counts[common].sum() / gold.size),
        },
        **confusions(labels, counts),
    }
    if len(labels) == 2:
        second = probabilities(np.ones_like(gold))
        report["threshold"] = threshold_of(second, gold == 1)
    losses = -np.log(np.maximum(of_gold, LEAST_PROBABILITY))
    worst = WorstExamples()
    for i in np.flatnonzero(gold != predicted).tolist():
        worst.add(float(losses[i]), i, [(labels[gold[i]], labels[predicted[i]])])
    columns = {
        "label": [labels[i] for i in gold],
        "prediction": [labels[i] for i in predicted],
        "probability": of_predicted.tolist(),
        "label_probability": of_gold.tolist(),
        "loss": losses.tolist(),
    }
    return report | worst_texts(worst, predictions.examples, columns)


def worst_texts(
    worst: WorstExamples,
    examples: Sequence[TextExample | PairExample],
    columns: Mapping[str, Sequence[Any]],
) -> JsonObject:
    """Return the number of wrong examples, and those to list.

    Each is listed with its texts and its values of the columns.
    """
    return worst.listed(
        lambda i: {
            "where": examples[i].where,
            "texts": [shortened(text) for text in examples[i].texts[:2]],
            **{name: column[i] for name, column in columns.items()},
        }
    )


def sections(report: JsonObject) -> list[Section]:
    common = report["commonest_class"]
    table = class_table(report, "Scores by class", "class", ("macro", "weighted"))
    shown = [
        Section(
            "classes",
            "Classes",
            f"Always {common['label']!r}, the commonest class, would be right for "
            f"{common['fraction']:.1%} of the texts.",
            [table],
        ),
        confusion_section(report),
        calibration_section(report["calibration"], "the predicted class", "is right"),
    ]
    if report.get("threshold"):
        what = f"The class {report['positive_class']!r} is predicted"
        values = report["threshold"]
        shown.append(threshold_section(values, what, report["checkpoint"]))
    note = (
        "The texts whose own class has the lowest probability, so that the model is "
        "most confidently wrong. Some labels may be wrong, not the model. The loss is "
        "the negative logarithm of that probability, in nats."
    )
    return [*shown, worst_section(report, note, _item)]


def worst_section(
    report: JsonObject,
    note: str,
    item: Callable[[JsonObject], Item],
    unit: str = "texts",
) -> Section:
    """Return the section of the worst examples, of which some may be listed."""
    items = [item(entry) for entry in report["worst"]]
    wrong, total = report["num_wrong"], report["num_examples"]
    extent = f"{wrong:,} of {total:,} {unit} are wrong ({wrong / max(total, 1):.1%})"
    if len(items) < wrong:
        extent += f"; {len(items)} of them are listed"
    return Section("worst", "Worst examples", f"{extent}. {note}", [Examples(items)])


def passages(texts: Sequence[str]) -> list[Passage]:
    """Return a text, or both texts of a pair."""
    names = ("text",) if len(texts) == 1 else ("first text", "second text")
    return [
        Passage(name, [MarkedSpan(text)])
        for name, text in zip(names, texts, strict=True)
    ]


def _item(entry: JsonObject) -> Item:
    gold, predicted = entry["label"], entry["prediction"]
    return Item(
        entry["where"],
        [
            ("gold", f"{gold} ({entry['label_probability']:.2%})"),
            ("predicted", f"{predicted} ({entry['probability']:.2%})"),
            ("loss", f"{entry['loss']:.2f}"),
        ],
        passages(entry["texts"]),
        [(gold, predicted)],
    )


ANALYSES = {"single_label_classification": Analysis(analyse, sections)}
