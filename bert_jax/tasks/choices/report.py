"""Errors in the choice of what follows a text."""

import numpy as np

from bert_jax.metrics.confusions import confusion_counts, counts_of_classes
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.choices.examples import ChoiceExample
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Prediction, Predictions
from bert_jax.tasks.reporting import by_class, views
from bert_jax.tasks.reporting.analysis import Analysis
from bert_jax.tasks.reporting.probabilities import (
    calibration_of,
    calibration_section,
    negative_log,
)
from bert_jax.tasks.reporting.worst import WorstExamples, shortened, worst_section


def analyse(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return scores by position of the right choice, calibration and worst examples."""
    pairs = list(zip(predictions.examples, predictions.values, strict=True))
    gold = np.array([example.label for example, _ in pairs])
    predicted = np.array([value["choice"] for _, value in pairs])
    probabilities = np.array([max(value["probabilities"]) for _, value in pairs])
    of_gold = np.array([value["probabilities"][own.label] for own, value in pairs])
    losses = negative_log(of_gold).tolist()
    numbers = [len(example.choices) for example, _ in pairs]
    positions = [str(i) for i in range(max(numbers))]
    counts = confusion_counts(gold, predicted, len(positions))
    worst = WorstExamples()
    for i in np.flatnonzero(gold != predicted).tolist():
        worst.add(losses[i], i, [(gold[i], predicted[i])])
    return {
        "calibration": calibration_of(probabilities, gold == predicted),
        **by_class.class_scores(positions, counts_of_classes(counts)),
        **by_class.confusions(positions, counts),
        "chance": sum(1 / number for number in numbers) / len(numbers),
        **worst.listed(lambda i: _entry(pairs[i]) | {"loss": losses[i]}),
    }


def _entry(pair: tuple[ChoiceExample, Prediction]) -> JsonObject:
    example, value = pair
    return {
        "where": example.where,
        "context": shortened(example.context),
        "question": shortened(example.question),
        "choices": [shortened(choice) for choice in example.choices],
        "label": example.label,
        "prediction": value["choice"],
        "probabilities": [float(value) for value in value["probabilities"]],
    }


def sections(report: JsonObject) -> list[views.Section]:
    title = "Scores by position of the right choice"
    table = by_class.class_table(report, title, "position", ("macro",))
    note = (
        "The recall is the accuracy of the questions whose right choice stands at that "
        f"position, from 0. A guess is right for {report['chance']:.1%}."
    )
    about = "The questions whose right choice has the lowest probability."
    return [
        views.Section("classes", "Positions", note, [table]),
        by_class.confusion_section(report, "A class is a position here."),
        calibration_section(report["calibration"], "the predicted choice", "is right"),
        worst_section(report, about, _item, unit="questions"),
    ]


def _item(entry: JsonObject) -> views.Item:
    gold, predicted = entry["label"], entry["prediction"]
    probabilities = entry["probabilities"]
    facts = [
        ("gold", f"choice {gold} ({probabilities[gold]:.2%})"),
        ("predicted", f"choice {predicted} ({probabilities[predicted]:.2%})"),
        ("loss", f"{entry['loss']:.2f}"),
    ]
    passages = [
        views.Passage(name, [views.MarkedSpan(entry[name])])
        for name in ("context", "question")
        if entry[name]
    ]
    marks: dict[int, tuple[views.MarkKind, str]] = {
        predicted: ("wrong", "predicted"),
        gold: ("gold", "gold"),
    }
    for i, choice in enumerate(entry["choices"]):
        mark, label = marks.get(i, ("", ""))
        span = views.MarkedSpan(choice, mark, label)
        passages.append(views.Passage(f"choice {i} ({probabilities[i]:.1%})", [span]))
    return views.Item(entry["where"], facts, passages, [(str(gold), str(predicted))])


ANALYSES = {"multiple-choice": Analysis(analyse, sections)}
