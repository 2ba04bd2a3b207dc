"""The report of a fine-tuned model's errors: as JSON values, and what to show of it."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from bert_jax.reports.web_page import SUFFIX, web_page
from bert_jax.storage.files import JsonObject, atomic_write, require_output_file
from bert_jax.tasks import kinds
from bert_jax.tasks.baselines import BASELINE, no_better
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Predictions, without_repeats
from bert_jax.tasks.reporting.analysis import Analysis
from bert_jax.tasks.reporting.views import Column, Section, Table, TableCell

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
    kind = task.report_kind(predictions)
    report: JsonObject = {
        "kind": kind,
        "task": task.name,
        **dataclasses.asdict(source),
        "num_examples": len(predictions.examples),
        "scores": dict(scores),
    }
    if kind == "single_label_classification" and len(task.model.labels) == 2:
        report["positive_class"] = task.model.labels[1]
    return report | task.analyses[kind].analyse(task, predictions)


def sections(report: JsonObject) -> list[Section]:
    """Return what to show of a report, the scores first."""
    kind = report["kind"]
    analysis = next(t.analyses[kind] for t in kinds.KINDS if kind in t.analyses)
    scores = without_repeats(report["scores"]) | report["baseline"]
    columns = [Column("score"), Column("value", "number"), Column("meaning")]
    rows: list[list[TableCell]] = [
        [name, value, _meaning(name, report, analysis)]
        for name, value in scores.items()
    ]
    notes = [*(f"{line}." for line in no_better(scores)), report["learned_from"]]
    table = Table("Official scores", columns, rows)
    first = Section("scores", "Scores", " ".join(notes).strip(), [table])
    return [first, *analysis.sections(report)]


def _meaning(name: str, report: JsonObject, analysis: Analysis) -> str:
    """Return what a score is of; "" if its name says it."""
    if name.startswith(BASELINE):
        return "of a rule that needs no model"
    if name in analysis.meanings:
        return analysis.meanings[name]
    if name == "f1" and "positive_class" in report:
        return f"of the class {report['positive_class']}"
    if name.startswith("f1_"):
        return f"of the {analysis.parts} {name[3:]}"
    return _MEANINGS.get(name, "")


JSON_SUFFIX = ".json"


def require_report_file(page: Path) -> None:
    """Raise ValueError or OSError if the files of a report cannot be written."""
    require_output_file(page, SUFFIX)
    require_output_file(page.with_suffix(JSON_SUFFIX), JSON_SUFFIX)


def write_report(report: JsonObject, page: Path) -> list[Path]:
    """Write a report as a web page, and as JSON beside it; return both paths.

    Raise ValueError unless `page` ends in .html, OSError if a file cannot be written.
    """
    require_report_file(page)
    values = page.with_suffix(JSON_SUFFIX)
    content = json.dumps(report, indent=1, allow_nan=False) + "\n"
    drawn = report_page(report).encode()
    atomic_write(values, content.encode())
    atomic_write(page, drawn)
    return [page, values]


def report_page(report: JsonObject) -> str:
    """Return the page as HTML; all texts are escaped."""
    data = {"sections": [dataclasses.asdict(section) for section in sections(report)]}
    name, value = next(iter(report["scores"].items()))
    fields = {
        "checkpoint": report["checkpoint"],
        "file": report["data"],
        "summary": f"{report['num_examples']:,} examples, {name} {value:.4g}",
    }
    return web_page("bert_jax.reports", "error_report.html", fields, data)
