"""Where a run goes on: the newest whole checkpoint of its workdir, decided once."""

import contextlib
import dataclasses
from typing import Any

from etils import epath

from bert_jax.checkpoints.manager import REMOVED
from bert_jax.checkpoints.steps import (
    CHECKPOINTS,
    latest_verified_step,
    list_steps,
    read_config,
)
from bert_jax.distributed.collectives import (
    broadcast_from_primary,
    is_primary,
    raise_on_all_processes,
)
from bert_jax.storage.files import read_json_object
from bert_jax.storage.manifest import MANIFEST
from bert_jax.terminal.messages import say

DAMAGED = ".damaged"
"""Ends the name of a step directory that was passed over."""
HISTORY = "history"
"""The key of a workdir's config.json under which it says what changed at which step."""


@dataclasses.dataclass(frozen=True)
class Resume:
    """What a workdir holds of a run that has begun."""

    step: int
    """Of its newest whole checkpoint."""
    config: dict[str, Any]
    """The run's configuration, as JSON values."""
    history: list[dict[str, Any]]
    """On what machine the run began, and what was changed since."""
    problems: list[str]
    """What is wrong with newer checkpoints."""


def find_resume(workdir: epath.Path) -> Resume | None:
    """What the run in `workdir` goes on from; None: it has no whole checkpoint yet.

    A directory of a step is not enough: a run that was killed in its first save has
    one, and nothing to go on from.

    Raises:
        DamagedError: there are checkpoints, and none of them is whole.
        ValueError: the configuration in the workdir cannot be read.
    """
    step, problems = latest_verified_step(workdir / CHECKPOINTS)
    if step is None:
        return None
    copy = workdir / CHECKPOINTS / str(step)
    path = workdir / "config.json"
    if path.exists():
        remedy = f"remove it, and the run goes on with that of {copy}"
        config = read_json_object(path, remedy)
    else:
        config = read_config(copy)
    history = config.pop(HISTORY, [])
    if not isinstance(history, list):
        history = []
    return Resume(step, config, history, problems)


def find_resume_on_all(workdir: epath.Path) -> Resume | None:
    """What `find_resume` says, decided by the primary process for all.

    Raises:
        ValueError: as `find_resume`.
    """
    found: Resume | None = None
    with raise_on_all_processes():
        if is_primary():
            found = find_resume(workdir)
    told = broadcast_from_primary(None if found is None else dataclasses.asdict(found))
    return None if told is None else Resume(**told)


def set_aside_newer_steps(workdir: epath.Path, resume: Resume | None) -> None:
    """Put checkpoints out of the way that the run will write again.

    Damaged ones are renamed, unfinished ones removed; so is what is left of a removal.
    """
    directory = workdir / CHECKPOINTS
    newest = -1 if resume is None else resume.step
    for step in list_steps(directory):
        place = directory / str(step)
        if step > newest and (place / MANIFEST).exists():
            name, number = f"{step}{DAMAGED}", 1
            while (directory / name).exists():
                number += 1
                name = f"{step}{DAMAGED}.{number}"
            place.rename(directory / name)
            say(f"The damaged checkpoint of step {step} is kept as {directory / name}.")
        elif step > newest:
            place.rmtree()
    if directory.exists():
        for place in directory.iterdir():
            if place.name.endswith(REMOVED):
                with contextlib.suppress(OSError):
                    place.rmtree()
