"""Scores, prediction files and error reports of a fine-tuned model."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.config import ExamplesConfig, FinetuneConfig
from bert_jax.config.checks import quoted, require
from bert_jax.inference.arguments import require_count
from bert_jax.inference.batching import Unread, example_outputs
from bert_jax.inference.learned import learned_line, training_examples
from bert_jax.pretrained import (
    Model,
    load_pretrained,
    read_finetuning,
    read_own_length,
    read_positions,
    resolve_path,
)
from bert_jax.reports.report import (
    ScoredSource,
    error_report,
    require_report_file,
    write_report,
)
from bert_jax.storage.atomic import local_output
from bert_jax.storage.files import JsonObject, name_path_if_disk_full, require_writable
from bert_jax.tables.memory import RowsInMemory, named_source
from bert_jax.tasks.baselines import BASELINE
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.kinds import finetuning_task, task_name_of
from bert_jax.tasks.lengths import fit_lengths
from bert_jax.tasks.own_metrics import ComputeMetrics, own_scores
from bert_jax.tasks.pairs.prompts import chosen_embedding
from bert_jax.tasks.pairs.vectors import PairVectorsTask
from bert_jax.tasks.predictions import Example, Prediction, Predictions, Splits
from bert_jax.tasks.splits import fingerprint, hold_out
from bert_jax.tasks.tagging.task import TokenClassificationTask
from bert_jax.terminal.messages import warn


def examples_config_of(model: Model) -> ExamplesConfig:
    """Return how a model's examples became rows; the default if it has none."""
    positions = model.config.max_position_embeddings
    return model.data or default_examples_config(positions, model.own_length)


def settings_of(model: str) -> tuple[ExamplesConfig, str]:
    """Return how the examples of a model became rows, and its task; "": not known."""
    directory = resolve_path(model)[0]
    if run := read_finetuning(directory):
        return run.data, run.task
    own = read_own_length(directory)
    return default_examples_config(read_positions(directory), own), ""


def settings_for(data: ExamplesConfig, model: Model) -> ExamplesConfig:
    """Return the settings with what the model decides of them.

    These are how sentence pairs become vectors, whether a text has several labels, and
    lengths that are not given. Raise ValueError if rows are longer than the model
    takes, or its files require what this library does not compute.
    """
    positions = model.config.max_position_embeddings
    rule = f"data.max_length={data.max_length} but the model has {positions} positions"
    require(data.max_length <= positions, f"{rule}; pass at most that.")
    if not data.max_length:  # 0 is the model's own
        data = fit_lengths(data, positions, examples_config_of(model).max_length)
    if model.config.problem_type == "multi_label_classification":
        data = data.changed(multi_label=True)
    if model.config.head != PairVectorsTask.head:
        return data
    embedding = chosen_embedding(model.embedding, data.sentence_pairs.pooling)
    embedding.computed_similarity()  # else refused, before anything is read
    return data.changed(embedding=embedding)


def default_examples_config(positions: int, own_length: int = 0) -> ExamplesConfig:
    """Return the settings for an imported model; a length of 0 is not known."""
    length = min(own_length or positions, positions)
    return fit_lengths(ExamplesConfig(), max(length, 8))


def examples_of(task: FinetuningTask, part: str) -> list[Example]:
    """Read the examples that `task.data` names: a file, or split `part` of a path."""
    data = task.data
    if data.path:
        return task.read(part)
    rule = "must be validation or test."
    require(part in ("validation", "test"), f"part={quoted(part)} {rule}")
    if part == "test" and data.test:
        return task.read(data.test)
    if part != "validation":
        raise ValueError(
            f"part={part} needs data.path or data.test, which are empty; name the file "
            "by --input FILE, in Python by data."
        )
    if data.validation:
        return task.read(data.validation)
    if not data.train:
        given = f"data.test={data.test} is scored by --part test; " if data.test else ""
        raise ValueError(
            f"{given}data.validation is empty; pass --input with the file to score, in "
            "Python data."
        )
    splits = hold_out(task, task.read(data.train))
    # Runs of older versions have the place of a file of tags in its fingerprint.
    if data.fingerprint not in ("", fingerprint(splits.train, data.fingerprint)):
        own = fingerprint(task.match_labels(splits.validation))
        require(
            own == data.validation_fingerprint,
            f"{data.train} has changed since, and would hold out examples that were "
            "learned from; name a file by --input.",
        )
    return list(splits.validation)


@dataclasses.dataclass(frozen=True)
class ModelEvaluation:
    """What a model predicts for a file, and how good that is."""

    task: FinetuningTask
    predictions: Predictions
    scores: dict[str, float]
    """The official scores; {} if the file has no labels."""
    source: ScoredSource
    rankings: list[Prediction]
    """For each row, what `rankings_among` found; a report shows it."""

    @functools.cached_property
    def report(self) -> JsonObject:
        """What the model gets wrong."""
        both = zip(self.predictions.values, self.rankings, strict=True)
        values = [value | ranking for value, ranking in both]
        predictions = Predictions(self.predictions.examples, values)
        return error_report(self.task, predictions, self.scores, self.source)

    def write(
        self, output: str | os.PathLike[str], report: str | os.PathLike[str]
    ) -> list[str]:
        """Write predictions and a report, as `evaluate`; return the paths."""
        values = self.report if report else {}  # may fail, before a file is written
        files, directory = [], Path(output)
        if output:
            directory.mkdir(parents=True, exist_ok=True)
            with name_path_if_disk_full(directory):
                files = self.task.write(self.predictions, directory)
        pages = write_report(values, Path(report)) if report else []
        return [*(str(directory / name) for name in files), *map(str, pages)]


def require_outputs(
    output: str | os.PathLike[str], report: str | os.PathLike[str]
) -> None:
    """Raise ValueError or OSError unless what `evaluate` writes can be written."""
    if report:
        require_report_file(Path(report))
    if output:
        require_writable(local_output(output))


def evaluate(
    checkpoint: str | os.PathLike[str],
    data: ExamplesConfig | RowsInMemory | None = None,
    output: str | os.PathLike[str] = "",
    part: str = "validation",
    batch_size: int = 32,
    report: str | os.PathLike[str] = "",
    compute_metrics: ComputeMetrics | None = None,
) -> tuple[dict[str, float], list[str]]:
    """Score a fine-tuned model on a file, and write its predictions.

    Args:
        checkpoint: a path or a name, or a loaded model.
        data: names the file; or is the file's name, or its rows, as `train` of
            `finetune`; None: the file that the run was validated on.
        output: directory for the official prediction files; empty: none are written.
        part: validation or test: the split of `data.path`, or the file of that name.
        batch_size: rows that are computed at once.
        report: .html file for what the model gets wrong, with the same as .json beside
            it; empty: none is written.
        compute_metrics: adds scores of your own before the official ones.

    Returns:
        The scores and, as "baseline: RULE", the score of a rule without a model
        ({} if the file has no labels), and the paths of the files written.

    Raises:
        ValueError: the model was never fine-tuned, the file is not of its task, or a
            report is asked for and the file has no labels.
        OSError: `output` or `report` cannot be written.
    """
    require(
        compute_metrics is None or callable(compute_metrics),
        f"compute_metrics={quoted(compute_metrics)} must be a function of examples and "
        "predictions that returns scores.",
    )
    require_count("batch_size", batch_size)
    require_outputs(output, report)
    evaluation = model_evaluation(
        checkpoint, data, part, bool(report), compute_metrics, batch_size
    )
    files = evaluation.write(output, report)
    return evaluation.scores | evaluation.source.baseline, files


def error_page(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    data: ExamplesConfig | RowsInMemory | None = None,
) -> Path:
    """Write a page of what a fine-tuned model gets wrong; return its path.

    The same is written as JSON beside it.

    Args:
        model: a path or a name, or a loaded model.
        output: a file that ends in .html; it needs no network.
        data: as `evaluate`.

    Raises:
        ValueError: as `evaluate`; the file must have labels.
        OSError: the page cannot be written.
    """
    evaluate(model, data, report=output)
    return Path(output)


def evaluation_report(
    checkpoint: str | os.PathLike[str],
    data: ExamplesConfig | RowsInMemory | None = None,
    part: str = "validation",
    batch_size: int = 32,
) -> JsonObject:
    """Return what a fine-tuned model gets wrong in a file, as JSON values.

    Args and errors are those of `evaluate`; the values are in docs/finetuning.md.
    """
    return model_evaluation(checkpoint, data, part, True, None, batch_size).report


def model_evaluation(
    checkpoint: str | os.PathLike[str],
    data: ExamplesConfig | RowsInMemory | None,
    part: str,
    needs_labels: bool,
    compute_metrics: ComputeMetrics | None,
    batch_size: int = 32,
) -> ModelEvaluation:
    """Return what a model predicts for a file; args and errors are of `evaluate`."""
    model, where = _opened(checkpoint)
    data = settings_for(_data_to_score(data, model), model)
    name = task_name_of(model.config, data)
    task = finetuning_task(name, data, model.config)
    try:
        as_read = examples_of(task, part)
    except ValueError as error:
        raise ValueError(f"{error} ({where} was fine-tuned on {name}.)") from error
    examples = list(task.match_labels(as_read))
    source = ScoredSource(where, scored_name(data, part))
    has_labels = _all_have_labels(task, examples)
    if needs_labels and not has_labels:
        raise ValueError(
            f"{source.data} has no labels, and a report compares predictions with "
            "labels; name a file that has them, or leave out the page of --output."
        )
    outputs = example_outputs(task, model, examples, batch_size, shows_progress=True)
    unread = Unread(task, model.tokenizer)
    unread.add(outputs.split)
    unread.warn(source.data)
    predictions = Predictions(examples, task.predict(outputs))
    if not has_labels:
        return ModelEvaluation(task, predictions, {}, source, [])
    for line in task.score_warnings(outputs.split):
        warn(line)
    rankings = task.rankings_among(outputs) if needs_labels else []
    scores = task.scores_among(outputs) | task.official_scores(predictions)
    if compute_metrics:
        own = own_scores(compute_metrics, predictions)
        scores = own | scores | own  # of two with one name, the user's
    source = _compared(source, task, model, as_read, examples)
    return ModelEvaluation(task, predictions, scores, source, rankings)


def _opened(checkpoint: Any) -> tuple[Model, str]:
    """Return the model, placed on the device, that is named or loaded; and its name."""
    model = getattr(checkpoint, "model", checkpoint)  # of a `Predictor`
    if isinstance(model, Model):
        return model.placed(), str(model.directory)
    name = os.fspath(model)
    return load_pretrained(name).placed(), name


def _data_to_score(
    data: ExamplesConfig | RowsInMemory | None, model: Model
) -> ExamplesConfig:
    """Return what names the examples; if it is not given, the model's own settings."""
    own = examples_config_of(model)
    if isinstance(data, ExamplesConfig):
        return data.changed(num_texts=own.num_texts)
    if data is None:
        return own
    place = named_source(data, "rows")
    return own.changed(path="", glue="", train="", validation=place, test=place)


def _compared(
    source: ScoredSource,
    task: FinetuningTask,
    model: Model,
    as_read: Sequence[Example],
    examples: Sequence[Example],
) -> ScoredSource:
    """Return the source with the baseline, and with what the model learned from it."""
    data = examples_config_of(model)
    if data.train == task.data.train:  # which may hold the rows, and not their name
        data = data.changed(train=task.data.train)
    of_run = dataclasses.replace(task, data=data)
    train = training_examples(of_run, as_read)
    if learned := learned_line(task, train, examples):
        warn(f"{source.data}: {learned}")
    if not train and isinstance(task, TokenClassificationTask):
        return source  # the tags of known words are not known
    rule, value = task.baseline(Splits(train, examples))
    baseline = {f"{BASELINE}{rule}": value}
    return ScoredSource(source.checkpoint, source.data, baseline, learned)


def baseline_of_run(config: FinetuneConfig) -> dict[str, float]:
    """Return the baseline of a run's validation examples, as "baseline: NAME".

    It is {} if the files of the run are not where they were, or have changed.
    """
    task = finetuning_task(config.task, config.data.renamed, config.model)
    train = training_examples(task, [])
    if not train:
        return {}
    with contextlib.suppress(OSError, ValueError):
        examples = task.match_labels(examples_of(task, "validation"))
        rule, value = task.baseline(Splits(train, examples))
        return {f"{BASELINE}{rule}": value}
    return {}


def scored_name(data: ExamplesConfig, part: str) -> str:
    """Return the name of the examples that `evaluate` scores."""
    if data.path:
        return f"{data.path}, {part}"
    if part == "test":
        return data.test
    return data.validation or f"{data.train}, examples that were held out"


def _all_have_labels(task: FinetuningTask, examples: Sequence[Example]) -> bool:
    """Return whether the file has labels; raise ValueError if only some have one."""
    has_label = [task.has_label(example) for example in examples]
    if any(has_label) and not all(has_label):
        first = examples[has_label.index(False)]
        raise ValueError(
            f"{getattr(first, 'where', first)} has no label, but other rows have one; "
            "to score them, each must have one."
        )
    return all(has_label)
