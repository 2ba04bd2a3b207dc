"""The report of a fine-tuned model's errors: as JSON values, and what to show of it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

from bert_jax.error_analysis import (
    choices,
    entities,
    found_pairs,
    labels,
    numbers,
    questions,
    scored_pairs,
    tags,
    texts,
)
from bert_jax.error_analysis.views import Column, Section, Table, TableCell
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.baselines import BASELINE, no_better
from bert_jax.tasks.finetuning import without_repeats
from bert_jax.tasks.finetuning_task import FinetuningTask, Predictions
from bert_jax.tasks.ner_rows import learned_scheme
from bert_jax.tasks.registry import task_name_of


class Analysis(NamedTuple):
    """How the errors of one kind of prediction are analysed and shown."""

    analyse: Callable[[FinetuningTask, Predictions], JsonObject]
    sections: Callable[[JsonObject], list[Section]]


ANALYSES = {
    "single_label_classification": Analysis(texts.analyse, texts.sections),
    "multi_label_classification": Analysis(labels.analyse, labels.sections),
    "regression": Analysis(numbers.analyse, numbers.sections),
    "entities": Analysis(entities.analyse, entities.sections),
    "tags": Analysis(tags.analyse, tags.sections),
    "question-answering": Analysis(questions.analyse, questions.sections),
    "multiple-choice": Analysis(choices.analyse, choices.sections),
    "scored_pairs": Analysis(scored_pairs.analyse, scored_pairs.sections),
    "found_pairs": Analysis(found_pairs.analyse, found_pairs.sections),
}
"""By the `kind` of a report."""
_MEANINGS = {
    "accuracy": "fraction of right predictions",
    "macro_f1": "mean F1 of the classes",
    "micro_f1": "F1 of all decisions together",
    "mcc": "Matthews correlation coefficient",
    "pearson": "Pearson correlation",
    "spearman": "Spearman rank correlation",
    "mrr@10": "mean of 1 / rank of the first right text, 0 beyond 10",
    "map": "mean average precision",
    "mean_squared_error": "in squared units of the labels",
    "exact_match": "examples with all classes right",
}
_MEANINGS_OF_ENTITIES = {
    "f1": "of all entities, as conlleval",
    "precision": "of all entities",
    "recall": "of all entities",
    "accuracy": "fraction of words with the right tag",
}
_MEANINGS_OF_ANSWERS = {
    "f1": "words in common with the closest accepted answer, in per cent",
    "exact_match": "answers with the words of an accepted one, in per cent",
}


@dataclasses.dataclass(frozen=True)
class ScoredSource:
    """Where the predictions of a report come from, and what they compare with."""

    checkpoint: str
    data: str
    baseline: dict[str, float] = dataclasses.field(default_factory=dict)
    """The score of a rule that needs no model, as "baseline: NAME", if it is known."""
    learned_from: str = ""
    """How many of the examples the model learned from; "": none that is known."""


def error_report(
    task: FinetuningTask,
    predictions: Predictions,
    scores: Mapping[str, float],
    source: ScoredSource,
) -> JsonObject:
    """Return what a model gets wrong, as JSON values.

    All kinds of reports have `kind`, `task`, `checkpoint`, `data`, `num_examples`, the
    official `scores`, `baseline` and `learned_from`; most have `classes`, `confusions`,
    `calibration` and `worst`. For two classes, `positive_class` is the one that `f1`
    and `threshold` are of. What is undefined is None.

    Args:
        predictions: of examples that have labels; those of pairs to be found with the
            fields of `FinetuningTask.rankings_among`.

    Raises:
        ValueError: a probability is not a number.
    """
    kind = _kind(task, predictions)
    report: JsonObject = {
        "kind": kind,
        "task": task_name_of(task.model, task.data),
        **dataclasses.asdict(source),
        "num_examples": len(predictions.examples),
        "scores": dict(scores),
    }
    if kind == "single_label_classification" and len(task.model.labels) == 2:
        report["positive_class"] = task.model.labels[1]
    return report | ANALYSES[kind].analyse(task, predictions)


def _kind(task: FinetuningTask, predictions: Predictions) -> str:
    name = task_name_of(task.model, task.data)
    if name == "sentence-pairs":
        has_label = predictions.examples[0].label is not None
        return "scored_pairs" if has_label else "found_pairs"
    if name == "token-classification":
        return "tags" if learned_scheme(task.model) is None else "entities"
    return name if name in ANALYSES else task.model.problem_type


def sections(report: JsonObject) -> list[Section]:
    """Return what to show of a report, the scores first."""
    scores = without_repeats(report["scores"]) | report["baseline"]
    columns = [Column("score"), Column("value", "number"), Column("meaning")]
    rows: list[list[TableCell]] = [
        [name, value, _meaning(name, report)] for name, value in scores.items()
    ]
    title = "Official scores"
    note = " ".join(
        [*(f"{line}." for line in no_better(scores)), report["learned_from"]]
    ).strip()
    first = Section("scores", "Scores", note, [Table(title, columns, rows)])
    return [first, *ANALYSES[report["kind"]].sections(report)]


def _meaning(name: str, report: JsonObject) -> str:
    """Return what a score is of; "" if its name says it."""
    if name.startswith(BASELINE):
        return "of a rule that needs no model"
    if report["kind"] == "entities":
        return _MEANINGS_OF_ENTITIES.get(name, f"of the type {name[3:]}")
    if report["kind"] == "question-answering":
        return _MEANINGS_OF_ANSWERS.get(name, "")
    if name == "f1":
        return f"of the class {report['positive_class']}"
    if name.startswith("f1_"):
        return f"of the class {name[3:]}"
    return _MEANINGS.get(name, "")
