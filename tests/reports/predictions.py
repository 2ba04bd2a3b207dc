"""Tasks with predictions made by hand."""

from typing import Any

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.reports.report import ScoredSource, error_report
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.kinds import finetuning_task, task_name_of
from bert_jax.tasks.predictions import Predictions
from bert_jax.tasks.texts.examples import TextExample

BOTH = ("bad", "good")
MANY = ("a", "b", "c")


def text_task(labels: tuple[str, ...] = BOTH, **options: Any) -> FinetuningTask:
    model = BertConfig.tiny(head="sequence_classification", labels=labels, **options)
    name = task_name_of(model)
    return finetuning_task(name, ExamplesConfig(), model)


def examples(*labels: Any) -> list[TextExample]:
    return [
        TextExample((f"text {i}",), label, f"f.csv, line {i + 2}")
        for i, label in enumerate(labels)
    ]


def classified(*second: float) -> list[JsonObject]:
    """Predictions by the probability of the second of two classes."""
    return [
        {
            "label": BOTH[p > 0.5],
            "probabilities": {"bad": 1 - p, "good": p},
        }
        for p in second
    ]


def report_of(task: FinetuningTask, own: list[Any], values: list[Any]) -> JsonObject:
    predictions = Predictions(own, values)
    source = ScoredSource("runs/b", "test.csv")
    return error_report(task, predictions, task.official_scores(predictions), source)
