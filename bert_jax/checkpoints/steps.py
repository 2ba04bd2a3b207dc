"""Which checkpoints a workdir holds, and which of them are whole.

A step is whole when its manifest, written last, is there and agrees with its files.
"""

import math
import re
from typing import Any, TypeVar

from etils import epath

from bert_jax.config.serialization import from_dict
from bert_jax.storage.files import read_json_object
from bert_jax.storage.manifest import (
    MANIFEST,
    DamagedError,
    check_entries,
    read_manifest,
    verify_files,
)
from bert_jax.storage.runs_file import RUNS, read_runs_file

CHECKPOINTS = "checkpoints"
_STEP = re.compile("0|[1-9][0-9]{0,17}")

ConfigT = TypeVar("ConfigT")


def list_steps(directory: epath.Path) -> list[int]:
    """The steps that have a directory, whole or not, the newest first."""
    if not directory.exists():
        return []
    names = (path.name for path in directory.iterdir())
    return sorted((int(name) for name in names if _STEP.fullmatch(name)), reverse=True)


def verify(step_directory: epath.Path) -> dict[str, Any]:
    """Check that a checkpoint is whole, and return its manifest.

    Raises:
        FileNotFoundError: it was never finished.
        DamagedError: its manifest is malformed, or a file is missing or altered.
    """
    manifest = read_step_manifest(step_directory)
    verify_files(step_directory, manifest["files"])
    return manifest


def read_step_manifest(step_directory: epath.Path) -> dict[str, Any]:
    """The manifest of a checkpoint: `step`, `files` and perhaps `selection_score`.

    Raises:
        FileNotFoundError: there is none, so the checkpoint was never finished.
        DamagedError: it is malformed.
    """
    manifest = read_manifest(step_directory)
    path = step_directory / MANIFEST
    step, score = manifest.get("step"), selection_score_of(manifest)
    if type(step) is not int or step < 0:
        raise DamagedError(f"{path} has step={step!r:.80}, which is no step.")
    if step_directory.parent.name == CHECKPOINTS and step_directory.name != str(step):
        raise DamagedError(f"{path} is that of step {step}.")
    if score is not None and not is_score(score):
        raise DamagedError(f"{path} has {score!r:.80} where a score belongs.")
    check_entries(step_directory, manifest.get("files"))
    return manifest


def is_score(value: Any) -> bool:
    """Whether a manifest's value is a number that a float can hold."""
    return type(value) is float or (type(value) is int and abs(value) < 1 << 53)


def selection_score_of(manifest: dict[str, Any]) -> Any:
    """What the best checkpoint has most of; None: not known."""
    # Version 0.1.0 called it otherwise.
    return manifest.get("selection_score", manifest.get("merit"))


def latest_verified_step(directory: epath.Path) -> tuple[int | None, list[str]]:
    """The newest step that is whole, and what is wrong with the newer ones.

    A single step that was never finished is a run killed in its first save, and no
    loss: None then.

    Raises:
        DamagedError: there were checkpoints, and none of them is whole.
    """
    problems: list[str] = []
    damaged = 0
    for step in list_steps(directory):
        try:
            verify(directory / str(step))
            return step, problems
        except FileNotFoundError as error:
            problems.append(str(error))
        except DamagedError as error:
            problems.append(str(error))
            damaged += 1
    if damaged or len(problems) > 1:
        raise DamagedError(
            f"No checkpoint in {directory} is whole: {' '.join(problems)} "
            "Restore the files from a copy, or start in another workdir."
        )
    return None, problems


def selection_scores(directory: epath.Path) -> tuple[dict[int, float], list[str]]:
    """The score of each finished step; one that was not scored, or is NaN, has -inf.

    Returns:
        Score by step, and what is wrong with manifests that cannot be read.
    """
    scores: dict[int, float] = {}
    problems = []
    for step in list_steps(directory):
        try:
            score = selection_score_of(read_step_manifest(directory / str(step)))
        except FileNotFoundError:
            continue
        except DamagedError as error:
            problems.append(str(error))
            continue
        known = score is not None and not math.isnan(score)
        scores[step] = float(score) if known else -math.inf
    return scores, problems


def best_verified_step(
    directory: epath.Path, verified: int | None = None
) -> tuple[int | None, list[str]]:
    """The verified step with the highest score; returns as `latest_verified_step`.

    Args:
        verified: a step that is known to be whole.
    """
    scores, problems = selection_scores(directory)
    for step in sorted(scores, key=lambda step: (scores[step], step), reverse=True):
        try:
            if step != verified:
                verify(directory / str(step))
            return step, problems
        except DamagedError as error:
            problems.append(str(error))
    return latest_verified_step(directory)


def find_checkpoint(path: epath.Path) -> tuple[epath.Path, list[str]]:
    """The whole checkpoint that `path` means: itself, or one of a workdir.

    That is the newest of a pretraining run, and the best of a fine-tuning run; of
    several fine-tuning runs, that of the best.

    Returns:
        Its directory, and what was wrong with those passed over.

    Raises:
        FileNotFoundError: there is none.
        DamagedError: `path` is a damaged checkpoint, or all of its checkpoints are.
    """
    if (path / "state").exists() or (path / MANIFEST).exists():
        verify(path)
        return path, []
    if (path / RUNS).exists():
        path = path / read_runs_file(path)["best"]
    step, problems = latest_verified_step(path / CHECKPOINTS)
    if step is not None and "task" in read_config(path / CHECKPOINTS / str(step)):
        step, problems = best_verified_step(path / CHECKPOINTS, verified=step)
    if step is None:
        raise FileNotFoundError(
            f"{path} holds no whole checkpoint; name a workdir of `bert-jax pretrain` "
            "or `finetune`, or one of its checkpoints/STEP directories."
        )
    return path / CHECKPOINTS / str(step), problems


def read_config(directory: epath.Path) -> dict[str, Any]:
    """The `config.json` of a checkpoint or workdir.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged.
    """
    remedy = "restore it from a copy, or name another checkpoint"
    return read_json_object(directory / "config.json", remedy)


def read_config_as(directory: epath.Path, name: str, cls: type[ConfigT]) -> ConfigT:
    """The configuration of class `cls` that `config.json` holds under `name`.

    Args:
        name: a key; empty: the whole file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, or lacks the key.
    """
    path, values = directory / "config.json", read_config(directory)
    part = values.get(name) if name else values
    if not isinstance(part, dict):
        raise ValueError(
            f"{path} has {name}={part!r:.80}, which must be an object; restore the "
            "file from a copy, or name another checkpoint."
        )
    try:
        return from_dict(cls, part)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
