"""Scores and prediction files of a fine-tuned model."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from etils import epath

from bert_jax.checkpoints.steps import read_config, read_config_as
from bert_jax.config import BertConfig, ExamplesConfig, FinetuneConfig
from bert_jax.formats.embedding import model_directory
from bert_jax.inference.predictions import predictions_for, task_of
from bert_jax.pretrained import load_pretrained, resolve_path
from bert_jax.storage.files import name_path_in_errors, require_writable
from bert_jax.tasks.lengths import fit_lengths
from bert_jax.tasks.problem import Problem, Record
from bert_jax.tasks.problems import problem_of
from bert_jax.tasks.splits import hold_out


def examples_config(directory: epath.Path) -> ExamplesConfig:
    """How a checkpoint's examples became rows; of an imported one, as is usual.

    Args:
        directory: the checkpoint, or a directory of Hugging Face's files.
    """
    values = read_config(model_directory(directory))
    if "task" in values:
        return read_config_as(directory, "", FinetuneConfig).data
    positions = values.get("max_position_embeddings")
    if "model" in values:
        positions = read_config_as(
            directory, "model", BertConfig
        ).max_position_embeddings
    # What a damaged file says is refused where the model is read.
    return default_examples_config(positions if type(positions) is int else 512)


def default_examples_config(positions: int) -> ExamplesConfig:
    """How rows are made for a model of so many positions that was not trained here."""
    longest = max(positions, 8)
    return fit_lengths(ExamplesConfig(max_length=longest), longest)


def records_of(problem: Problem, data: ExamplesConfig, part: str) -> list[Record]:
    """The records of the file that `data` names.

    Args:
        part: of `data.path`: train, validation or test.

    Raises:
        ValueError: no file is named, or it cannot be read.
    """
    if data.path:
        return problem.read(part, data)
    if part != "validation":
        raise ValueError(
            f"part={part} is of a directory that data.path names, and there is none; "
            "leave --part out, and name the file to score by --data.validation FILE."
        )
    if data.validation:
        return problem.read(data.validation, data)
    if not data.train:
        raise ValueError(
            "data.validation is empty; pass --data.validation with the file to score."
        )
    records = problem.read(data.train, data)
    return hold_out(problem, records, data.validation_fraction)[1]


@contextlib.contextmanager
def error_hint(what: str) -> Iterator[None]:
    """Where a file is refused, say what may have been forgotten."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error} ({what}.)") from error


def evaluate(
    checkpoint: str | os.PathLike[str],
    data: ExamplesConfig | None = None,
    output: str | os.PathLike[str] = "",
    part: str = "validation",
) -> tuple[dict[str, float], list[str]]:
    """Score a fine-tuned model on a file, and write its predictions.

    Args:
        checkpoint: as `load` takes.
        data: with the file; None: the one that it was validated on.
        output: directory for the official prediction files; empty: none are written.
        part: of `data.path`: validation or test.

    Returns:
        The official scores (none where the file has no labels), and the paths of the
        files written.

    Raises:
        ValueError: the model was never fine-tuned, or the file is not of its task.
        OSError: `output` cannot be written.
    """
    model = load_pretrained(os.fspath(checkpoint))
    problem = problem_of(task_of(model.config))
    data = data or examples_config(model.directory)
    with error_hint(f"{checkpoint} was fine-tuned on {task_of(model.config)}"):
        records = records_of(problem, data, part)
    problem.check(records, model.config, data.validation or data.path or data.train)
    labelled = _labelled(problem, records)
    if output:
        require_writable(output)
    found = predictions_for(model.config, model.params, model.tokenizer, records, data)
    scores = {}
    if labelled:
        scores = problem.score(records, found, model.config, data)
    if not output:
        return scores, []
    directory = Path(output)
    directory.mkdir(parents=True, exist_ok=True)
    with name_path_in_errors(directory):
        names = problem.write(records, found, model.config, data, directory)
    return scores, [str(directory / name) for name in names]


def _labelled(problem: Problem, records: Sequence[Record]) -> bool:
    """Whether the file has labels.

    Raises:
        ValueError: some records have one, and some do not.
    """
    known = [problem.labelled(record) for record in records]
    if any(known) and not all(known):
        first = records[known.index(False)]
        raise ValueError(
            f"{getattr(first, 'where', first)} has no label, and other rows have; to "
            "score them, each must have one."
        )
    return all(known)


def examples_config_of(checkpoint: str) -> ExamplesConfig:
    """`examples_config` of what `load` would find at `checkpoint`."""
    return examples_config(resolve_path(checkpoint)[0])
