"""One self-contained web page of a run: curves, scores, samples, configuration."""

from collections.abc import Callable
from pathlib import Path

from bert_jax.apps.run_page.curves import charts, reference_lines
from bert_jax.apps.run_page.run_record import (
    best_evaluation,
    configuration,
    evaluations,
    progress,
    provenance,
    read_run_record,
)
from bert_jax.apps.run_page.samples import open_validation, samples
from bert_jax.config import PretrainConfig
from bert_jax.inference.evaluation import baseline_of_run
from bert_jax.reports.web_page import SUFFIX, web_page
from bert_jax.storage.files import JsonObject, atomic_write, require_output_file
from bert_jax.tasks.baselines import comparisons, no_better
from bert_jax.tasks.pretraining.task import unigram_baseline
from bert_jax.training.metrics_file import METRICS


def write_run_report(
    workdir: str, path: Path, report: Callable[[str], None] = lambda line: None
) -> None:
    """Write the page of one run, which may still go on; all texts are escaped.

    `path` ends in .html; the page needs no network. `report` takes lines on the
    progress. Raise FileNotFoundError if `workdir` is not that of a run, ValueError if
    it holds several or a damaged config.json, OSError if the page cannot be written.
    """
    require_output_file(path, SUFFIX)  # before the checkpoints are loaded
    run = read_run_record(workdir)
    notes, unigram, scores, sampled = [], {}, {}, None
    if count := run.damaged_lines:
        lines = "1 line" if count == 1 else f"{count:,} lines"
        notes.append(f"Left out of {METRICS}, as unreadable: {lines}.")
    if isinstance(run.config, PretrainConfig):
        dataset, reason = open_validation(run.config)
        if dataset is None:
            notes.append(f"There is no line of the unigram baseline. {reason}")
        elif run.lines:
            unigram = unigram_baseline(run.config, dataset)
        sampled = samples(run, dataset, reason, report)
    elif run.lines:
        best = best_evaluation(run)
        scores = (best.scalars if best else {}) | baseline_of_run(run.config)
    reference = reference_lines(run.config, run.history, unigram)
    reference |= {name: (rule, limit) for name, _, rule, limit in comparisons(scores)}
    notes += [f"{line}." for line in no_better(scores)]
    data: JsonObject = {
        "charts": charts(run.lines, reference),
        "notes": notes,
        "evaluations": evaluations(run),
        "samples": sampled,
        "configuration": configuration(run.config),
        "provenance": provenance(run),
    }
    fields = {"run": str(run.workdir), "progress": progress(run)}
    page = web_page("bert_jax.apps.run_page", "run_report.html", fields, data)
    atomic_write(path, page.encode())
