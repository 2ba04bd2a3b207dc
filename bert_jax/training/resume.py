"""Find the latest verified checkpoint of a workdir, from which its run resumes."""

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence

from etils import epath

from bert_jax.checkpoints.manager import INTERVAL, REMOVED
from bert_jax.checkpoints.optimizer_state import has_optimizer_state
from bert_jax.checkpoints.steps import (
    CHECKPOINTS,
    latest_verified_step,
    list_steps,
    read_config,
)
from bert_jax.config.files import HISTORY
from bert_jax.distributed.collectives import run_on_primary
from bert_jax.storage.files import JsonObject, read_json_object
from bert_jax.storage.manifest import (
    MANIFEST,
    SCORE_KEY_OF_0_1_0,
    DamagedError,
    read_manifest,
    write_manifest,
)
from bert_jax.storage.runs_file import RUNS
from bert_jax.terminal.messages import say

LOSS_FIELDS = ("masking.", "model.attention", "objective", "pair_loss")
"""Fields of the configuration that decide what a loss is of; a name that ends in a dot
is a section."""
SCORE_FIELDS = (*LOSS_FIELDS, "data.validation_fingerprint", "eval_rows")
"""Fields that decide what a validation score is of."""
DAMAGED = ".damaged"
"""Suffix of the directory of a damaged step that was skipped."""


@dataclasses.dataclass(frozen=True)
class Resume:
    """The state of a run that a workdir holds."""

    step: int
    """The step of its latest verified checkpoint."""
    config: JsonObject
    """The run's configuration, as JSON values."""
    history: list[JsonObject]
    """The machine on which the run began, and what was changed at which step."""
    problems: list[str]
    """What is wrong with newer checkpoints, one line each."""
    interval: object = None
    """The sums of an `Interval` that the checkpoint was saved in; None: a new one."""
    has_optimizer: bool = True
    """Whether the checkpoint has the optimizer's state."""

    @property
    def incomparable_until(self) -> int:
        """The last step at which one of `SCORE_FIELDS` was changed; -1: never.

        Later scores are of other validation rows, tokens or losses.
        """
        steps = [-1]
        for entry in self.history:
            changed = entry.get("changed") if isinstance(entry, dict) else None
            if fields_among(changed or (), SCORE_FIELDS):
                steps.append(int(entry.get("step", -1)))
        return max(steps)


def fields_among(changed: Iterable[JsonObject], fields: Sequence[str]) -> list[str]:
    """Return the names of changed fields that are among `fields`, or in a section."""
    names = [str(c.get("field")) for c in changed if isinstance(c, dict)]
    return [n for n in names if n in fields or f"{n.partition('.')[0]}." in fields]


def fresh_scores_line(changed: Iterable[JsonObject], step: int) -> str:
    """Return a line if later scores are not compared with those up to `step`, or ""."""
    if not (names := fields_among(changed, SCORE_FIELDS)):
        return ""
    return (
        f"Validation scores after step {step} are not comparable with earlier ones "
        f"({', '.join(names)}): the best score and patience start afresh there."
    )


def drop_score(checkpoint: epath.Path, changed: Iterable[JsonObject]) -> None:
    """Remove the score of a checkpoint, with which later ones are not comparable.

    If the loss has changed, the losses since its last line of metrics are removed, too.
    A damaged checkpoint stays as it is.
    """
    try:
        manifest = read_manifest(checkpoint)
    except DamagedError as error:
        say(f"{error} It stays as it is, for a repair.")
        return
    for name in ("selection_score", SCORE_KEY_OF_0_1_0):
        manifest.pop(name, None)
    if fields_among(changed, LOSS_FIELDS):
        manifest.pop(INTERVAL, None)
    write_manifest(manifest, checkpoint)


def find_resume(workdir: epath.Path) -> Resume | None:
    """Find what the run in `workdir` resumes from; None if it has no checkpoint yet.

    A run that was killed in its first save has a step directory, but no checkpoint.
    Raise DamagedError if there are checkpoints, and none can be verified, ValueError if
    the configuration cannot be read, or the directory is of something else.
    """
    step, problems = latest_verified_step(workdir / CHECKPOINTS)
    if step is None:
        require_no_other_files(workdir)
        return None
    checkpoint = workdir / CHECKPOINTS / str(step)
    path = workdir / "config.json"
    remedy = f"remove it, and the run uses that of {checkpoint}"
    exists = path.exists()
    config = read_json_object(path, remedy) if exists else read_config(checkpoint)
    history = config.pop(HISTORY, [])
    history = history if isinstance(history, list) else []
    for entry in history:
        # What was changed at a damaged step holds from this one on.
        if isinstance(entry, dict) and type(entry.get("step")) is int:
            entry["step"] = min(entry["step"], step)
    manifest = read_manifest(checkpoint)
    interval, has_optimizer = manifest.get(INTERVAL), has_optimizer_state(manifest)
    return Resume(step, config, history, problems, interval, has_optimizer)


def require_no_other_files(workdir: epath.Path) -> None:
    """Raise ValueError if a directory is that of several runs, a dataset or a model.

    A run would write its files among theirs, and replace their config.json.
    """
    path, what = workdir / RUNS, "several runs"
    if not path.exists():
        path, what = workdir / MANIFEST, "a dataset or a checkpoint"
    if not path.exists():
        path, what = workdir / "config.json", "a model"
        if not path.exists():
            return
        values = read_json_object(path, "choose another --workdir")
        if HISTORY in values or "num_steps" in values:
            return
    raise ValueError(
        f"workdir={workdir} is the directory of {what} ({path.name}); a run would "
        "write its files among those. Choose another --workdir."
    )


def find_resume_on_all(workdir: epath.Path) -> Resume | None:
    """Call `find_resume` on the primary process, and broadcast the result.

    Raise ValueError if the checkpoints or the configuration in `workdir` are damaged.
    """

    def values() -> JsonObject | None:
        resume = find_resume(workdir)
        return None if resume is None else dataclasses.asdict(resume)

    on_all = run_on_primary(values)
    return None if on_all is None else Resume(**on_all)


def clear_newer_steps(workdir: epath.Path, resume: Resume | None) -> None:
    """Rename or remove steps after the one to resume from; the run writes them again.

    Damaged ones are renamed. Incomplete ones and leftovers of removals are removed.
    """
    directory = workdir / CHECKPOINTS
    newest = -1 if resume is None else resume.step
    for step in list_steps(directory):
        path = directory / str(step)
        if step > newest and (path / MANIFEST).exists():
            kept, number = directory / f"{step}{DAMAGED}", 1
            while kept.exists():
                number += 1
                kept = directory / f"{step}{DAMAGED}.{number}"
            path.rename(kept)
            say(f"The damaged checkpoint of step {step} is kept as {kept}.")
        elif step > newest:
            path.rmtree()
    for path in directory.iterdir() if directory.exists() else ():
        if path.name.endswith(REMOVED):
            with contextlib.suppress(OSError):
                path.rmtree()
