"""Which checkpoints a workdir holds, and which of them are whole.

A step is whole when its manifest, written last, is there and agrees with its files.
"""

import math
from typing import Any, TypeVar

from etils import epath

from bert_jax.config_json import from_dict
from bert_jax.files import read_json_object
from bert_jax.manifest import MANIFEST, DamagedError, read_manifest, verify_files
from bert_jax.runs_file import RUNS, read_runs_file

CHECKPOINTS = "checkpoints"

ConfigT = TypeVar("ConfigT")


def steps_in(directory: epath.Path) -> list[int]:
    """The steps that have a directory, whole or not, the newest first."""
    if not directory.exists():
        return []
    names = (path.name for path in directory.iterdir())
    return sorted((int(name) for name in names if name.isdigit()), reverse=True)


def verify(step_directory: epath.Path) -> None:
    """Check that a checkpoint is whole.

    Raises:
        FileNotFoundError: it was never finished.
        DamagedError: a file is missing or altered.
    """
    manifest = read_manifest(step_directory)
    if "files" not in manifest:
        raise DamagedError(f"{step_directory / MANIFEST} lists no files.")
    verify_files(step_directory, manifest["files"])


def newest_whole(directory: epath.Path) -> tuple[int | None, list[str]]:
    """The newest step that is whole, and what is wrong with the newer ones.

    A single step that was never finished is a run killed in its first save, and no
    loss: None then.

    Raises:
        DamagedError: there were checkpoints, and none of them is whole.
    """
    problems: list[str] = []
    damaged = 0
    for step in steps_in(directory):
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


def best_whole(directory: epath.Path) -> tuple[int | None, list[str]]:
    """The step of most merit among those that are whole, as `newest_whole` gives one.

    A step that was never scored has the least.
    """
    merits = {}
    for step in steps_in(directory):
        if (directory / str(step) / MANIFEST).exists():
            merit = read_manifest(directory / str(step)).get("merit")
            merits[step] = -math.inf if merit is None else merit
    problems: list[str] = []
    for step in sorted(merits, key=lambda step: (merits[step], step), reverse=True):
        try:
            verify(directory / str(step))
            return step, problems
        except DamagedError as error:
            problems.append(str(error))
    return newest_whole(directory)


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
    if (path / "state").exists():
        verify(path)
        return path, []
    if (path / RUNS).exists():
        path = path / read_runs_file(path)["best"]
    tuned = (path / "config.json").exists() and "task" in read_config(path)
    step, problems = (best_whole if tuned else newest_whole)(path / CHECKPOINTS)
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


def read_part(directory: epath.Path, name: str, cls: type[ConfigT]) -> ConfigT:
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
