"""Scores and prediction files of a fine-tuned model."""

import os
from collections.abc import Sequence
from pathlib import Path

from etils import epath

from bert_jax.checkpoints.steps import read_config, read_config_as
from bert_jax.config import BertConfig, ExamplesConfig, FinetuneConfig
from bert_jax.formats.embedding import model_directory
from bert_jax.inference.batching import predict_examples
from bert_jax.pretrained import load_pretrained
from bert_jax.storage.files import name_path_in_errors, require_writable
from bert_jax.tasks.finetuning_task import Example, FinetuningTask, Predictions
from bert_jax.tasks.lengths import fit_lengths
from bert_jax.tasks.own_metrics import ComputeMetrics, with_own_scores
from bert_jax.tasks.registry import finetuning_task, task_name_of
from bert_jax.tasks.splits import hold_out


def examples_config(directory: epath.Path) -> ExamplesConfig:
    """Return how a model's examples became rows; the default if it is imported."""
    values = read_config(model_directory(directory))
    if "task" in values:
        return read_config_as(directory, "", FinetuneConfig).data
    positions = values.get("max_position_embeddings")
    if "model" in values:
        model = read_config_as(directory, "model", BertConfig)
        positions = model.max_position_embeddings
    # A damaged value is refused where the model is read.
    return default_examples_config(positions if type(positions) is int else 512)


def default_examples_config(positions: int) -> ExamplesConfig:
    """Return the settings for an imported model with this number of positions."""
    longest = max(positions, 8)
    return fit_lengths(ExamplesConfig(max_length=longest), longest)


def examples_of(task: FinetuningTask, part: str) -> list[Example]:
    """Read the examples that `task.data` names: a file, or split `part` of a path."""
    data = task.data
    if data.path:
        return task.read(part)
    if part == "test" and data.test:
        return task.read(data.test)
    if part != "validation":
        raise ValueError(
            f"part={part} needs data.path or data.test, which are empty; leave --part "
            "out, and name the file to score by --data.validation FILE."
        )
    if data.validation:
        return task.read(data.validation)
    if not data.train:
        raise ValueError(
            "data.validation is empty; pass --data.validation with the file to score."
        )
    return list(hold_out(task, task.read(data.train)).validation)


def evaluate(
    checkpoint: str | os.PathLike[str],
    data: ExamplesConfig | None = None,
    output: str | os.PathLike[str] = "",
    part: str = "validation",
    batch_size: int = 32,
    compute_metrics: ComputeMetrics | None = None,
) -> tuple[dict[str, float], list[str]]:
    """Score a fine-tuned model on a file, and write its predictions.

    Args:
        checkpoint: as `load`.
        data: names the file; None: the one that the run was validated on.
        output: directory for the official prediction files; empty: none are written.
        part: the split of `data.path` to score: validation or test.
        batch_size: rows that are computed at once.
        compute_metrics: adds scores of your own before the official ones.

    Returns:
        The scores ({} if the file has no labels), and the paths of the files
        written.

    Raises:
        ValueError: the model was never fine-tuned, or the file is not of its task.
        OSError: `output` cannot be written.
    """
    model = load_pretrained(os.fspath(checkpoint))
    name = task_name_of(model.config)
    data = data or examples_config(model.directory)
    task = finetuning_task(name, data, model.config)
    try:
        examples = examples_of(task, part)
    except ValueError as error:
        raise ValueError(f"{error} ({checkpoint} was fine-tuned on {name}.)") from error
    task.check(examples)
    has_labels = _all_have_labels(task, examples)
    if output:
        require_writable(output)
    values = predict_examples(task, model.params, model.tokenizer, examples, batch_size)
    predictions = Predictions(examples, values)
    scores = {}
    if has_labels:
        official = task.score(predictions)
        scores = with_own_scores(official, compute_metrics, predictions)
    if not output:
        return scores, []
    directory = Path(output)
    directory.mkdir(parents=True, exist_ok=True)
    with name_path_in_errors(directory):
        names = task.write(predictions, directory)
    return scores, [str(directory / name) for name in names]


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
