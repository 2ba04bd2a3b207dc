"""The files of a workdir, and whether a configuration may resume its run."""

import jax
from etils import epath

from bert_jax.checkpoints.steps import CHECKPOINTS, best_verified_step
from bert_jax.config import RunConfig
from bert_jax.config.files import HISTORY
from bert_jax.config.serialization import differences, from_dict, to_dict
from bert_jax.distributed.collectives import (
    broadcast_from_primary,
    is_primary,
    raise_on_all_processes,
)
from bert_jax.distributed.startup import check_same_config
from bert_jax.storage.files import JsonObject, write_json
from bert_jax.terminal.cores import num_cores
from bert_jax.terminal.messages import say
from bert_jax.tokenization import Tokenizer
from bert_jax.training.metrics_file import METRICS, read_scores
from bert_jax.training.resume import Resume, clear_newer_steps

FREE_TO_CHANGE = (
    "allow_extra checkpoint_every data.path data.test data.train eval_every eval_rows "
    "hang_timeout_minutes keep_checkpoints log_every log_examples max_failed_saves "
    "mesh.data mesh.fsdp mesh.gather mesh.overlap mesh.tensor microbatches "
    "model.attention_kernel model.remat patience profile_steps report"
).split()
"""Fields that may differ on resume: none changes what a step learns. (The mesh and
`microbatches` change the last bits, by the order of sums; `microbatches` and
`attention_kernel` also change dropout.)"""
EXTENDABLE = (
    "num_epochs num_steps optimizer.decay_share optimizer.decay_steps "
    "optimizer.peak_learning_rate optimizer.schedule"
).split()
"""Fields that may differ with `--extend`: the length of a run, its learning rate
and schedule."""


def machine() -> JsonObject:
    """Return what the bits of a run depend on, besides its configuration."""
    return {
        "backend": jax.default_backend(),
        "device_kind": jax.devices()[0].device_kind,
        "cpu_cores": num_cores(),
        "jax": jax.__version__,
    }


def changes(config: RunConfig, resume: Resume, where: object) -> list[JsonObject]:
    """Return the fields in which a configuration differs from the run's own.

    A field that an older version did not have counts as its default. Raise ValueError
    if the run's configuration cannot be read.
    """
    try:
        before = to_dict(from_dict(type(config), resume.config))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{where} belongs to a run of another kind, or its config.json is damaged: "
            f"{' '.join(str(error).split())} Choose another --workdir."
        ) from error
    return [
        {"field": name, "before": old, "now": new}
        for name, old, new in differences(before, to_dict(config))
        if name not in FREE_TO_CHANGE
    ]


def check_workdir(
    workdir: epath.Path, config: RunConfig, resume: Resume | None, extend: bool = False
) -> list[JsonObject]:
    """Check that a workdir belongs to this configuration; return what `extend` changes.

    A workdir without a complete checkpoint belongs to any configuration. With `extend`,
    the fields of `EXTENDABLE` may differ. Raise ValueError if others do.
    """
    if resume is None:
        return []
    changed = changes(config, resume, workdir)
    allowed = EXTENDABLE if extend else []
    if refused := [change for change in changed if change["field"] not in allowed]:
        raise ValueError(
            f"{workdir} belongs to another run: {_describe(refused)}. Repeat its "
            f"options, or choose another --workdir{_extend_hint(refused, workdir)}."
        )
    if config.num_steps < resume.step:
        raise ValueError(
            f"num_steps={config.num_steps} but {workdir} is at step {resume.step} "
            "already; give at least as many."
        )
    return changed


def _describe(changed: list[JsonObject]) -> str:
    return "; ".join(
        f"{change['field']} was {change['before']!r} and is {change['now']!r}"
        for change in changed
    )


def _extend_hint(refused: list[JsonObject], workdir: epath.Path) -> str:
    """Return the remedies if only length and learning rate differ, else ""."""
    if any(change["field"] not in EXTENDABLE for change in refused):
        return ""
    return (
        "; to continue this run with these values, pass --extend; to start a separate "
        f"run, --init-from {workdir} --keep-optimizer with a new --workdir"
    )


def core_count_line(last: JsonObject) -> str:
    """Return a warning if a CPU run resumes with another number of cores, else "".

    XLA's CPU programs split their sums by the number of threads, so that the last bits
    of a loss depend on it. `last` is the newest entry of the run's history.
    """
    before, now = last.get("cpu_cores"), num_cores()
    if before in (None, now) or jax.default_backend() != "cpu":
        return ""
    return (
        f"This run had {before} CPU cores and has {now} now: its losses may differ in "
        "their last bits from those of a run that was never stopped."
    )


def write_run_files(
    workdir: epath.Path,
    config: RunConfig,
    tokenizer: Tokenizer,
    resume: Resume | None,
    changed: list[JsonObject],
) -> None:
    """Write config.json and the tokenizer, after all processes agree on the config.

    The history in config.json gets an entry when the run starts, when its length or
    learning rate changes, and when the machine changes.
    """
    check_same_config(config)
    with raise_on_all_processes():
        if not is_primary():
            return
        workdir.mkdir(parents=True, exist_ok=True)
        clear_newer_steps(workdir, resume)
        step, history = (resume.step, list(resume.history)) if resume else (0, [])
        last = next((e for e in reversed(history) if isinstance(e, dict)), {})
        if changed:
            say(f"Extended at step {step}: {_describe(changed)}.")
        if line := core_count_line(last):
            say(line)
        entry = machine() | ({"changed": changed} if changed else {})
        if any(last.get(name) != value for name, value in entry.items()):
            history.append({"step": step, **entry})
        write_json(to_dict(config) | {HISTORY: history}, workdir / "config.json")
        tokenizer.save(workdir / "tokenizer")


def final_scores(
    workdir: epath.Path, config: RunConfig, resume: Resume | None
) -> dict[str, float] | None:
    """Return the validation scores of a run at its last step; None: not there yet."""
    scores = None
    if resume is not None and resume.step == config.num_steps and not resume.problems:
        scores = read_scores(workdir / METRICS, resume.step)
    return broadcast_from_primary(scores)


def best_scores(workdir: epath.Path) -> dict[str, float]:
    """Return the validation scores of the best checkpoint, by `metrics.jsonl`."""
    scores = None
    if is_primary():
        best, _ = best_verified_step(workdir / CHECKPOINTS)
        scores = None if best is None else read_scores(workdir / METRICS, best)
        if scores is not None:
            say(f"The best checkpoint is that of step {best}.")
    return broadcast_from_primary(scores or {})
