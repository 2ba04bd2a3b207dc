"""Moments of a run at which a test stops it, found by looking at its files."""

import dataclasses
import random
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from run_helpers import logged_lines, names_in, steps
from runs import Process, logged_steps, wait_until

TIGHT = 0.0001
"""Seconds between two looks at what is there for a millisecond."""
UNFINISHED = ("before a manifest", "writing a manifest")
"""What `state_of` says of a run whose newest checkpoint lacks its manifest alone."""


@dataclasses.dataclass
class Watch:
    """A process that has just been started, its workdir, and dice."""

    process: Process
    workdir: Path
    dice: random.Random

    def sleep(self, seconds: float) -> bool:
        """Whether the process was still there after at most so long."""
        time.sleep(self.dice.uniform(0, seconds))
        return not self.process.ended

    def until(self, condition: Callable[[], bool], pause: float = 0.002) -> bool:
        return wait_until(condition, self.process, pause=pause)


Moment: TypeAlias = Callable[[Watch], bool]
"""Returns when it is there, or False where the process ended before."""


def starting(watch: Watch) -> bool:
    """The interpreter starts, modules are imported."""
    return watch.sleep(2.5)


def restoring(watch: Watch) -> bool:
    """Imports are done; data is verified, the state restored, the step compiled."""
    time.sleep(1.5)
    return watch.sleep(4)


def rewriting(watch: Watch) -> bool:
    """The metrics are written again without the lines after the checkpoint."""
    names = {"metrics.jsonl.tmp", "examples.jsonl.tmp"}
    first = logged_steps(watch.workdir)
    return watch.until(
        lambda: (
            bool(names.intersection(names_in(watch.workdir)))
            or logged_steps(watch.workdir) != first
        ),
        TIGHT,
    )


def between_steps(watch: Watch) -> bool:
    """Some steps after the first."""
    # Lines are dropped first, where a step is to be done again.
    if not watch.until(lambda: "Resuming" in watch.process.stdout() or is_new(watch)):
        return False
    until = logged_steps(watch.workdir) + watch.dice.randint(1, 15)
    return watch.until(lambda: logged_steps(watch.workdir) >= until) and watch.sleep(
        0.05
    )


def is_new(watch: Watch) -> bool:
    """Whether a run without a checkpoint has begun to train."""
    return not steps(watch.workdir) and logged_steps(watch.workdir) > 0


def first_saving(watch: Watch) -> bool:
    """Arrays are being written, into a temporary directory."""
    checkpoints = watch.workdir / "checkpoints"
    before = set(names_in(checkpoints))

    def begun() -> bool:
        return any("tmp" in name for name in set(names_in(checkpoints)) - before)

    return watch.until(begun, TIGHT) and watch.sleep(0.03)


def saving(watch: Watch) -> bool:
    """The same, of one of the next saves."""
    return all(first_saving(watch) for _ in range(watch.dice.randint(1, 3)))


def unfinished(watch: Watch) -> bool:
    """The arrays are there, and no manifest yet."""
    return watch.until(lambda: bool(without_manifest(watch)), TIGHT) and watch.sleep(
        0.002
    )


def without_manifest(watch: Watch) -> list[Path]:
    """The checkpoints that have no manifest."""
    checkpoints = watch.workdir / "checkpoints"
    names = {
        str(step): names_in(checkpoints / str(step)) for step in steps(watch.workdir)
    }
    return [
        checkpoints / n for n, files in names.items() if "manifest.json" not in files
    ]


def is_writing_manifest(names: Iterable[str]) -> bool:
    """Whether a directory's files hold a manifest under its temporary name."""
    return any(re.fullmatch(r"manifest\.json\..*\.tmp", name) for name in names)


def writing_the_manifest(watch: Watch) -> bool:
    """The manifest is written, and not yet renamed to what it will be called."""
    checkpoints = watch.workdir / "checkpoints"

    def temporary() -> bool:
        return any(
            is_writing_manifest(names_in(checkpoints / name))
            for name in names_in(checkpoints)
        )

    return watch.until(temporary, TIGHT)


ALL = (
    starting,
    restoring,
    rewriting,
    between_steps,
    between_steps,
    saving,
    saving,
    unfinished,
    unfinished,
    writing_the_manifest,
)


def state_of(workdir: Path) -> str:
    """What a run that was just killed was at, as its files tell."""
    names = names_in(workdir)
    if any(name.endswith(".jsonl.tmp") for name in names):
        return "rewriting metrics"
    checkpoints = workdir / "checkpoints"
    for name in names_in(checkpoints):
        files = names_in(checkpoints / name)
        if is_writing_manifest(files):
            return "writing a manifest"
        if name.isdigit() and "manifest.json" not in files:
            return "before a manifest"
        if not name.isdigit() and "tmp" in name:
            return "saving"
    return "other"


def evaluating(watch: Watch) -> bool:
    """The step's training line is there, and its validation line is not yet."""
    every = 10

    def due() -> bool:
        found = logged_lines(watch.workdir)
        return (
            bool(found)
            and found[-1]["split"] == "train"
            and (found[-1]["step"] % every == 0)
        )

    first = logged_steps(watch.workdir)
    return (
        watch.until(lambda: logged_steps(watch.workdir) != first)
        and watch.until(due, TIGHT)
        and watch.sleep(0.01)
    )
