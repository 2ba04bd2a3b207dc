"""Fork a run: a new workdir that begins as the run was at one of its checkpoints.

The step decides the rows and keys of a batch, so that the fork and its source have the
same rows and the same randomness in each step; they differ by the changed options only.
"""

import os
import shutil

from etils import epath

from bert_jax.checkpoints.optimizer_state import has_optimizer_state
from bert_jax.checkpoints.steps import (
    CHECKPOINTS,
    checkpoint_of_step,
    read_config,
    read_config_as,
    verify_checkpoint,
)
from bert_jax.config import FinetuneConfig, PretrainConfig, RunConfig
from bert_jax.config.checks import require
from bert_jax.config.files import HISTORY
from bert_jax.config.serialization import differences, to_dict, with_changes
from bert_jax.data.records import open_dataset
from bert_jax.runs.init_from import require_layers
from bert_jax.runs.workdir import FREE_TO_CHANGE
from bert_jax.storage.atomic import (
    absolute,
    atomic_directory,
    local_output,
    require_new,
)
from bert_jax.storage.files import JsonObject, write_json
from bert_jax.storage.manifest import MANIFEST
from bert_jax.storage.remote import open_directory
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tasks.pretraining.task import require_words
from bert_jax.tasks.splits import fingerprint, read_splits
from bert_jax.training.metrics_file import METRICS, keep_lines_until
from bert_jax.training.report import EXAMPLES
from bert_jax.training.resume import SCORE_FIELDS, drop_score, fields_among

FORKED_FROM = "forked_from"
"""The key of a history entry that names the workdir and step of a fork's source."""
CHANGEABLE = (
    *FREE_TO_CHANGE,
    "masking.",
    "mesh.",
    "model.attention_probs_dropout_prob",
    "model.dtype",
    "model.hidden_dropout_prob",
    "objective",
    "optimizer.",
    "pair_loss",
)
"""Fields that a fork may change, except those that `FIXED` names; a name that ends in a
dot is a section. A pretraining run's may also change those of `is_changeable`."""
FIXED = {
    "seed": "the rows and the random keys of each step",
    "batch_size": "the rows of each step",
    "data.": "the rows of each step",
    "task": "the head and the loss",
    "class_weights": "the loss",
    "teacher": "the loss",
    "distillation.": "the loss",
    "compute_metrics": "the score of each checkpoint",
    "model.": "the parameters and what the model computes of them",
    "init_from": "how the run began",
    "keep_optimizer": "how the run began",
    "from_scratch": "how the run began",
    "reinitialise_layers": "how the run began",
    "optimizer.algorithm": "what the optimizer keeps of earlier steps",
    "num_epochs": "the number of steps",
    "num_steps": "in fine-tuning, the order of the last rows",
}
"""What other fields decide: the order of rows, the random keys, the parameter tree."""


def is_changeable(name: str, config: RunConfig) -> bool:
    """Whether a fork of a run with `config` may change the field of this dotted name.

    Fine-tuning takes the attention of the model that it starts from. The last batches
    of a fine-tuning run depend on `num_steps`: they are shuffled together.
    """
    if name in ("num_steps", "model.attention"):
        return not isinstance(config, FinetuneConfig)
    if name in FIXED:
        return False
    return name in CHANGEABLE or f"{name.partition('.')[0]}." in CHANGEABLE


def read_run_config(source: str | os.PathLike[str], step: int) -> RunConfig:
    """Return the configuration with which a run reached a checkpoint.

    It is a `PretrainConfig` or a `FinetuneConfig`. A later `--extend` does not count.
    Raise FileNotFoundError if `source` is no workdir with a complete checkpoint of
    `step`, ValueError if its configuration is damaged, or of another kind.
    """
    workdir = open_directory(source)
    config = _saved_config(workdir, step)
    for entry in _read_history(workdir):
        if entry.get("step") == step and FORKED_FROM in entry:  # a fork began with it
            changed = entry.get("changed", [])
            return with_changes(config, [(one["field"], one["now"]) for one in changed])
    return config


def _saved_config(workdir: epath.Path, step: int) -> PretrainConfig | FinetuneConfig:
    checkpoint = checkpoint_of_step(workdir, step)
    values = read_config(checkpoint)
    if "masking" in values:
        return read_config_as(checkpoint, "", PretrainConfig)
    if "task" in values:
        return read_config_as(checkpoint, "", FinetuneConfig)
    raise ValueError(
        f"{checkpoint} is not of a run of `bert-jax pretrain` or `finetune`; name the "
        "workdir of one."
    )


def fork(
    source: str | os.PathLike[str],
    step: int,
    output: str | os.PathLike[str],
    config: RunConfig,
) -> list[JsonObject]:
    """Write a new workdir that begins as a run was at a checkpoint.

    It has the checkpoint, the lines of metrics.jsonl and examples.jsonl up to it, and
    `config`, with which training continues. The source is only read; it may be
    training.

    Args:
        source: the workdir of the run.
        step: one that has a checkpoint.
        output: the new workdir, a local directory.
        config: the run's configuration, perhaps with other values of `CHANGEABLE`.

    Returns:
        The changed fields: `field`, `before` and `now` of each.

    Raises:
        FileNotFoundError: there is no such checkpoint, or the data are gone.
        FileExistsError: `output` exists and is not an empty directory.
        ValueError: a field was changed that must stay, the data have changed, or a file
            is damaged.
        OSError: `output` cannot be written.
    """
    target = local_output(output)
    require_new(target)
    workdir = open_directory(source)
    config = _with_predictions(config)
    changed = _changes(read_run_config(source, step), config, workdir)
    require(
        config.num_steps > step,
        f"num_steps={config.num_steps} leaves nothing to train after step {step}; "
        "fork an earlier step, or give a pretraining run a larger --num-steps.",
    )
    _check_data(config, workdir)
    checkpoint = workdir / CHECKPOINTS / str(step)
    manifest = verify_checkpoint(checkpoint)
    require(
        has_optimizer_state(manifest),
        f"{checkpoint} has no optimizer's state (keep_optimizer_states=none), with "
        "which a fork goes on; start another run from it by --init-from.",
    )
    files = [entry["path"] for entry in manifest["files"]]
    values = to_dict(config) | {HISTORY: _history(workdir, step, config)}
    with atomic_directory(target) as directory:
        for name in [*files, MANIFEST]:
            _copy(checkpoint / name, directory / CHECKPOINTS / str(step) / name)
            if name.startswith("tokenizer/"):
                _copy(checkpoint / name, directory / name)
        for name in (METRICS, EXAMPLES):
            if (workdir / name).exists():
                _copy(workdir / name, directory / name)
                keep_lines_until(directory / name, step)
        if fields_among(changed, SCORE_FIELDS):
            drop_score(directory / CHECKPOINTS / str(step), changed)
        write_json(values, directory / "config.json")
    return changed


def _with_predictions(config: RunConfig) -> RunConfig:
    """Return the configuration with as many predictions of a row as its rate needs."""
    if not isinstance(config, PretrainConfig) or config.masking.max_predictions:
        return config
    number = config.masking.num_slots(config.data.sequence_length)
    return config.changed(masking={"max_predictions": number})


def _changes(
    before: RunConfig, config: RunConfig, workdir: epath.Path
) -> list[JsonObject]:
    """Return the changed fields, or raise ValueError if one of them does not fit."""
    require_layers(config, config.model)
    config.check_shape()
    changed = _differing(before, config)
    for change in changed:
        name = change["field"]
        if not is_changeable(name, before):
            decides = FIXED.get(name) or FIXED[f"{name.partition('.')[0]}."]
            raise ValueError(
                f"{name}={change['now']} but {workdir} has {change['before']}, and a "
                f"fork cannot change it: it decides {decides}. Leave the option out, "
                "or start another run."
            )
    return changed


def _differing(before: RunConfig, config: RunConfig) -> list[JsonObject]:
    changed = differences(to_dict(before), to_dict(config))
    return [{"field": name, "before": old, "now": new} for name, old, new in changed]


def _check_data(config: RunConfig, workdir: epath.Path) -> None:
    """Raise FileNotFoundError or ValueError unless the run's data are still there."""
    assert isinstance(config, PretrainConfig | FinetuneConfig)
    place, name, expected = config.data.path, "path", config.data.fingerprint
    if not place and isinstance(config, FinetuneConfig):
        place, name = config.data.train, "train"
    try:
        if isinstance(config, PretrainConfig):
            dataset = open_dataset(place)
            actual = dataset.fingerprint
            require_words(config, dataset)
        else:
            task = finetuning_task(config.task, config.data)
            actual = fingerprint(read_splits(task).train, expected)
    except FileNotFoundError as error:
        reason = str(error)
        if error.strerror:
            reason = f"{error.filename}: {error.strerror}."
        if name == "train" and os.path.exists(place):
            name = "validation"
        raise FileNotFoundError(
            f"The data of {workdir} are gone: {reason} If they were moved, pass "
            f"--data.{name} with the place where they are now."
        ) from error
    require(
        actual == expected,
        f"{place} does not hold the data of {workdir}: its fingerprint is {actual}, "
        f"not {expected}; pass --data.{name} with the place where they are now.",
    )


def _history(workdir: epath.Path, step: int, config: RunConfig) -> list[JsonObject]:
    """Return the history of a run until `step`, and an entry that names the source.

    That entry repeats the machine of the source, with which a resumed run compares its
    own. It has all changes since the checkpoint was saved: of a fork of a fork, both.
    """
    changed = _differing(_saved_config(workdir, step), config)
    # A change at `step` itself applies to the steps after it.
    steps = ((entry, entry.get("step")) for entry in _read_history(workdir))
    kept = [entry for entry, own in steps if isinstance(own, int) and own < step]
    origin = {"workdir": str(absolute(workdir)), "step": step}
    own = {"step": step, FORKED_FROM: origin, "changed": changed}
    return [*kept, (kept[-1] if kept else {}) | own]


def _read_history(workdir: epath.Path) -> list[JsonObject]:
    """Return the entries of a run's history; [] if there is none to read."""
    exists = (workdir / "config.json").exists()
    history = read_config(workdir).get(HISTORY) if exists else None
    entries = history if isinstance(history, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def _copy(source: epath.Path, target: epath.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # epath's own copy would name both files in the error of a full disk.
    with source.open("rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 22)
