"""Find and verify the checkpoints of a workdir.

A checkpoint is complete when it has a manifest, which is written last, and verified
when its files have the sizes and checksums of the manifest.
"""

import math
import re
from typing import Any, TypeVar

from etils import epath

from bert_jax.config.files import HISTORY
from bert_jax.config.serialization import from_dict
from bert_jax.storage.files import JsonObject, read_json_object
from bert_jax.storage.manifest import (
    MANIFEST,
    SCORE_KEY_OF_0_1_0,
    DamagedError,
    check_entries,
    read_manifest,
    verify_files,
)
from bert_jax.storage.runs_file import RUNS, read_runs_file

CHECKPOINTS = "checkpoints"
_MAX_LISTED = 20
_OTHERS = {
    "model.onnx": ", but an export to ONNX, which is not read back",
    "model.stablehlo": ", but an export to StableHLO, which is not read back",
    "tokenizer_config.json": ", but a tokenizer",
}
"""What a directory without a checkpoint holds, by one of its files."""
_STEP = re.compile("0|[1-9][0-9]{0,17}")

ConfigT = TypeVar("ConfigT")


def list_steps(directory: epath.Path) -> list[int]:
    """The steps that have a directory, complete or not, the newest first."""
    if not directory.exists():
        return []
    names = (path.name for path in directory.iterdir())
    return sorted((int(name) for name in names if _STEP.fullmatch(name)), reverse=True)


def complete_steps(directory: epath.Path) -> list[int]:
    """The steps whose checkpoint is complete, not verified, the newest first."""
    steps = list_steps(directory)
    return [n for n in steps if (directory / str(n) / MANIFEST).exists()]


def checkpoint_of_step(workdir: epath.Path, step: int) -> epath.Path:
    """The directory of a run's checkpoint of `step`, which is complete, not verified.

    Raise FileNotFoundError, with the newest steps that `workdir` has, if it lacks it.
    """
    directory = workdir / CHECKPOINTS
    steps = complete_steps(directory)
    if not steps and (workdir / RUNS).exists():
        best = workdir / read_runs_file(workdir)["best"]
        raise FileNotFoundError(
            f"{workdir} holds several runs; name one of them, such as {best}."
        )
    if not steps:
        raise FileNotFoundError(
            f"{workdir} is not the workdir of a run with a complete checkpoint; name "
            "one of `bert-jax pretrain` or `finetune`."
        )
    if step not in steps:
        raise FileNotFoundError(
            f"{workdir} has no complete checkpoint of step {step}; it has those of "
            f"{', '.join(map(str, reversed(steps[:_MAX_LISTED])))}."
        )
    return directory / str(step)


def verify_checkpoint(step_directory: epath.Path) -> JsonObject:
    """Verify the checksums of a checkpoint, and return its manifest.

    Raise as `read_step_manifest`, and DamagedError if a file is missing or altered.
    """
    manifest = read_step_manifest(step_directory)
    verify_files(step_directory, manifest["files"])
    return manifest


def read_step_manifest(step_directory: epath.Path) -> JsonObject:
    """The manifest of a checkpoint: `step`, `files` and optionally `selection_score`.

    Raise FileNotFoundError if the save never finished, DamagedError if it is malformed.
    """
    manifest, path = read_manifest(step_directory), step_directory / MANIFEST
    step, score = manifest.get("step"), selection_score_of(manifest)
    if "shards" in manifest:
        raise DamagedError(
            f"{step_directory} is a dataset of `bert-jax prepare`; name a model."
        )
    if type(step) is not int or step < 0:
        raise DamagedError(f"{path} has step={step!r:.80}, which is not a step.")
    if step_directory.parent.name == CHECKPOINTS and step_directory.name != str(step):
        raise DamagedError(f"{path} is the manifest of step {step}.")
    # A float holds these numbers exactly.
    is_exact = type(score) is float or (type(score) is int and abs(score) < 1 << 53)
    if score is not None and not is_exact:
        raise DamagedError(f"{path} has selection_score={score!r:.80}, not a number.")
    check_entries(step_directory, manifest.get("files"))
    return manifest


def selection_score_of(manifest: JsonObject) -> Any:
    """The score of a manifest by which the best step is selected, or None."""
    return manifest.get("selection_score", manifest.get(SCORE_KEY_OF_0_1_0))


def latest_verified_step(directory: epath.Path) -> tuple[int | None, list[str]]:
    """The newest verified step, and a list of what is wrong with newer ones.

    The step is None if there are only checkpoints whose saves never finished: then the
    run was killed in its first saves, and nothing is lost. A step without a manifest
    whose config.json, which is written just before it, is there may be complete; there
    can be one of these at most. Raise DamagedError if there are other checkpoints, and
    none can be verified.
    """
    problems: list[str] = []
    damaged, num_nearly_complete = False, 0
    for step in list_steps(directory):
        try:
            verify_checkpoint(directory / str(step))
            return step, problems
        except (FileNotFoundError, DamagedError) as error:
            problems.append(str(error))
            damaged |= isinstance(error, DamagedError)
            num_nearly_complete += (directory / str(step) / "config.json").exists()
    if damaged or num_nearly_complete > 1:
        raise DamagedError(
            f"No checkpoint in {directory} is complete: {' '.join(problems)} "
            "Restore the files from a copy, or start in another workdir."
        )
    return None, problems


def selection_scores(directory: epath.Path) -> tuple[dict[int, float], list[str]]:
    """The score of each complete step, and the problems of unreadable manifests.

    A step without a score, or with NaN, has -inf.
    """
    scores: dict[int, float] = {}
    problems = []
    for step in list_steps(directory):
        try:
            score = selection_score_of(read_step_manifest(directory / str(step)))
            known = score is not None and not math.isnan(score)
            scores[step] = float(score) if known else -math.inf
        except FileNotFoundError:
            continue
        except DamagedError as error:
            problems.append(str(error))
    return scores, problems


def best_verified_step(
    directory: epath.Path, verified: int | None = None
) -> tuple[int | None, list[str]]:
    """The verified step with the highest score, and a list of problems of others.

    If scores are equal or absent, the newest of the steps. The step `verified` is not
    verified again.
    """
    scores, problems = selection_scores(directory)
    for step in sorted(scores, key=lambda step: (scores[step], step), reverse=True):
        try:
            if step != verified:
                verify_checkpoint(directory / str(step))
            return step, problems
        except FileNotFoundError:  # removed meanwhile by a run that goes on
            continue
        except DamagedError as error:
            problems.append(str(error))
    return latest_verified_step(directory)


def find_checkpoint(path: epath.Path) -> tuple[epath.Path, list[str]]:
    """Return the verified checkpoint that `path` is or has, and the problems of others.

    Of the workdir of a pretraining run this is the newest checkpoint, of a fine-tuning
    run the best, of several fine-tuning runs the best of the best run. Raise
    FileNotFoundError if there is none, DamagedError if `path` is a damaged checkpoint,
    or all of its checkpoints are.
    """
    if (path / "state").exists() or (path / MANIFEST).exists():
        verify_checkpoint(path)
        return path, []
    if (path / RUNS).exists():
        path = path / read_runs_file(path)["best"]
    step, problems = latest_verified_step(path / CHECKPOINTS)
    if step is not None and "task" in read_config(path / CHECKPOINTS / str(step)):
        step, problems = best_verified_step(path / CHECKPOINTS, verified=step)
    if step is None:
        others = [kind for name, kind in _OTHERS.items() if (path / name).exists()]
        raise FileNotFoundError(
            f"{path} holds no complete checkpoint{''.join(others[:1])}; name a workdir "
            "of `bert-jax pretrain` or `finetune`, or one of its checkpoints/STEP "
            "directories."
        )
    return path / CHECKPOINTS / str(step), problems


def read_config(directory: epath.Path) -> JsonObject:
    """The `config.json` of a checkpoint or workdir; ValueError if it is damaged."""
    remedy = "restore it from a copy, or name another checkpoint"
    return read_json_object(directory / "config.json", remedy)


def read_config_as(directory: epath.Path, name: str, cls: type[ConfigT]) -> ConfigT:
    """The configuration of class `cls` that `config.json` holds under `name`.

    The name "" stands for the whole file. Raise ValueError if the file is no
    configuration, or lacks the key.
    """
    path, values = directory / "config.json", read_config(directory)
    # Beside a run's fields are its history and how a saved model makes vectors.
    run = {k: v for k, v in values.items() if k not in ("embedding", HISTORY)}
    section = values.get(name) if name else run
    if not isinstance(section, dict):
        raise ValueError(
            f"{path} has {name}={section!r:.80}, which must be an object; restore the "
            "file from a copy, or name another checkpoint."
        )
    try:
        return from_dict(cls, section)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
