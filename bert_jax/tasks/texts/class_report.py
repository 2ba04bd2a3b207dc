"""Errors in the class of a text or a pair of texts, or in any number of classes."""

import numpy as np

from bert_jax.metrics.confusions import (
    confusion_counts,
    counts_of_classes,
    counts_of_labels,
)
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Predictions
from bert_jax.tasks.reporting import by_class, views
from bert_jax.tasks.reporting.analysis import Analysis
from bert_jax.tasks.reporting.probabilities import (
    calibration_of,
    calibration_section,
    negative_log,
    threshold_of,
    threshold_section,
)
from bert_jax.tasks.reporting.worst import WorstExamples, passages, worst_section
from bert_jax.tasks.texts.examples import classes_of


def analyse(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return scores by class, confusions, calibration, thresholds, worst examples."""
    labels, values = task.model.labels, predictions.values
    index = {name: i for i, name in enumerate(labels)}
    gold = np.array([index[str(example.label)] for example in predictions.examples])
    predicted = np.array([index[value["label"]] for value in values])
    tables = [value["probabilities"] for value in values]
    of_predicted, of_gold = (
        np.array([table[labels[i]] for table, i in zip(tables, classes, strict=True)])
        for classes in (predicted, gold)
    )
    counts = confusion_counts(gold, predicted, len(labels))
    common = int(counts.sum(axis=1).argmax())
    report = {
        "calibration": calibration_of(of_predicted, gold == predicted),
        **by_class.class_scores(labels, counts_of_classes(counts)),
        "commonest_class": {
            "label": labels[common],
            "fraction": float(counts[common].sum() / gold.size),
        },
        **by_class.confusions(labels, counts),
    }
    if len(labels) == 2:
        second = np.array([table[labels[1]] for table in tables])
        report["threshold"] = threshold_of(second, gold == 1)
    losses = negative_log(of_gold)
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
    return report | worst.listed_texts(predictions.examples, columns)


def sections(report: JsonObject) -> list[views.Section]:
    common = report["commonest_class"]
    table = by_class.class_table(
        report, "Scores by class", "class", ("macro", "weighted")
    )
    about = (
        f"Always {common['label']!r}, the commonest class, would be right for "
        f"{common['fraction']:.1%} of the texts."
    )
    shown = [
        views.Section("classes", "Classes", about, [table]),
        by_class.confusion_section(report),
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


def _item(entry: JsonObject) -> views.Item:
    gold, predicted = entry["label"], entry["prediction"]
    facts = [
        ("gold", f"{gold} ({entry['label_probability']:.2%})"),
        ("predicted", f"{predicted} ({entry['probability']:.2%})"),
        ("loss", f"{entry['loss']:.2f}"),
    ]
    shown = passages(entry["texts"])
    return views.Item(entry["where"], facts, shown, [(gold, predicted)])


def analyse_several(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return scores by class, calibration, thresholds and worst examples."""
    labels, values = task.model.labels, predictions.values
    examples = predictions.examples
    gold = np.array([[n in classes_of(e) for n in labels] for e in examples])
    chosen = np.array([[n in v["labels"] for n in labels] for v in values])
    rows = [[value["probabilities"][n] for n in labels] for value in values]
    probabilities = np.array(rows)
    report = {
        "calibration": calibration_of(probabilities.ravel(), gold.ravel()),
        **by_class.class_scores(labels, counts_of_labels(gold, chosen)),
        "threshold": threshold_of(probabilities.ravel(), gold.ravel()),
    }
    for i, entry in enumerate(report["classes"]):
        alone = threshold_of(probabilities[:, i], gold[:, i])
        entry["best_threshold"] = alone["best"] if alone else None
    # The binary cross-entropies of all classes, in nats.
    of_gold = np.where(gold, probabilities, 1 - probabilities)
    losses = negative_log(of_gold).sum(axis=1)
    worst = WorstExamples()
    for i in np.flatnonzero((gold != chosen).any(axis=1)).tolist():
        worst.add(float(losses[i]), i)
    columns = {
        "labels": [[labels[j] for j in np.flatnonzero(row)] for row in gold],
        "predictions": [[labels[j] for j in np.flatnonzero(row)] for row in chosen],
        "probabilities": [dict(zip(labels, row, strict=True)) for row in rows],
        "loss": losses.tolist(),
    }
    return report | worst.listed_texts(examples, columns)


def several_sections(report: JsonObject) -> list[views.Section]:
    averages = ("micro", "macro", "weighted")
    table = by_class.class_table(report, "Scores by class", "class", averages)
    note = "Each text has any number of classes; each class is a decision of its own."
    values = calibration_section(report["calibration"], "a class", "is right")
    shown = [views.Section("classes", "Classes", note, [table]), values]
    if report["threshold"]:
        what = "Each class is predicted"
        section = threshold_section(report["threshold"], what, report["checkpoint"])
        columns = [views.Column("class"), views.Column("threshold")]
        columns += [views.Column(name, "percent") for name in by_class.SCORES.values()]
        rows = [
            [
                entry["label"],
                f"{best['threshold']:.15g}",
                *(best[name] for name in by_class.SCORES),
            ]
            for entry in report["classes"]
            if (best := entry["best_threshold"])
        ]
        title = "The best threshold of each class alone"
        section.parts.append(views.Table(title, columns, rows))
        shown.append(section)
    note = (
        "The texts with the highest loss: the sum over the classes of the negative "
        "logarithm of the probability of what is right, in nats. Some labels may be "
        "wrong, not the model."
    )
    return [*shown, worst_section(report, note, _several_item)]


def _several_item(entry: JsonObject) -> views.Item:
    gold, predicted = set(entry["labels"]), set(entry["predictions"])
    missed, spurious = gold - predicted, predicted - gold
    probabilities = entry["probabilities"]

    def listed(names: list[str]) -> str:
        return ", ".join(f"{n} ({probabilities[n]:.1%})" for n in names) or "none"

    facts = [
        ("gold", listed(entry["labels"])),
        ("predicted", listed(entry["predictions"])),
        ("loss", f"{entry['loss']:.2f}"),
    ]
    errors = [(name, "missed") for name in sorted(missed)]
    errors += [("not gold", name) for name in sorted(spurious)]
    return views.Item(entry["where"], facts, passages(entry["texts"]), errors)


ONE_CLASS = {"single_label_classification": Analysis(analyse, sections)}
SEVERAL_CLASSES = {
    "multi_label_classification": Analysis(analyse_several, several_sections)
}
