"""The files of a workdir, and whether a configuration may resume its run."""

import dataclasses

import jax
from etils import epath

from bert_jax.checkpoints.optimizer_state import drop_optimizer_state
from bert_jax.checkpoints.steps import CHECKPOINTS, best_verified_step, complete_steps
from bert_jax.config import RunConfig
from bert_jax.config.checks import require
from bert_jax.config.files import HISTORY
from bert_jax.config.serialization import differences, from_dict, to_dict
from bert_jax.distributed.collectives import (
    broadcast_from_primary,
    is_primary,
    run_on_primary,
)
from bert_jax.distributed.startup import check_same_options
from bert_jax.inference.vector_record import params_fingerprint
from bert_jax.storage.files import JsonObject, read_json_object, write_json
from bert_jax.storage.manifest import content_checksum, read_manifest
from bert_jax.terminal.messages import say
from bert_jax.terminal.processes import num_cores
from bert_jax.training.faults import finite_scores
from bert_jax.training.metrics_file import METRICS, read_scores
from bert_jax.training.resume import (
    SCORE_FIELDS,
    Resume,
    clear_newer_steps,
    drop_score,
    fresh_scores_line,
)
from bert_jax.training.run import Run

FREE_TO_CHANGE = (
    "allow_extra checkpoint_every data.num_texts data.path data.test "
    "data.test_fingerprint data.train data.validation data.validation_fingerprint "
    "eval_every eval_rows "
    "first_step_timeout_minutes "
    "hang_timeout_minutes keep_checkpoints keep_optimizer_states log_every "
    "log_examples max_failed_saves "
    "mesh.data mesh.fsdp mesh.gather mesh.overlap mesh.tensor microbatches "
    "model.attention_kernel model.remat patience profile_steps rate_by_size report"
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


def changes(config: RunConfig, resume: Resume, where: object) -> list[JsonObject]:
    """Return the fields in which a configuration differs from the run's own.

    A field that an older version did not have counts as its default. Of those that are
    free to change, only the fields of `SCORE_FIELDS` count. Raise ValueError if the
    run's configuration cannot be read.
    """
    require_same_verb(config, resume, where)
    try:
        before = to_dict(from_dict(type(config), resume.config))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{where} has a damaged config.json: {' '.join(str(error).split())} "
            "Choose another --workdir."
        ) from error
    different = differences(before, to_dict(config))
    is_moved = any(name == "data.validation" for name, *_ in different)
    return [
        {"field": name, "before": old, "now": new}
        for name, old, new in different
        if name not in FREE_TO_CHANGE or name in SCORE_FIELDS
        # A run of an older version has not recorded this one.
        if is_moved or (name, old) != ("data.validation_fingerprint", "")
        # A checkpoint of the same workdir, whose fingerprint is compared.
        if not (name == "teacher" and old and str(new).startswith(f"{old}/"))
    ]


def require_same_verb(config: RunConfig, resume: Resume, where: object) -> None:
    """Raise ValueError if a workdir is of pretraining and not of fine-tuning, or so."""
    if ("task" in resume.config) != hasattr(config, "task"):
        verb = "finetune" if "task" in resume.config else "pretrain"
        raise ValueError(
            f"{where} is the workdir of a run of `bert-jax {verb}`; choose another "
            f"--workdir. To start from its model, pass --init-from {where}."
        )


def check_workdir(
    workdir: epath.Path, config: RunConfig, resume: Resume | None, extend: bool = False
) -> list[JsonObject]:
    """Check that a workdir belongs to this configuration; return what has changed.

    A workdir without a complete checkpoint belongs to any configuration. Those of
    `SCORE_FIELDS` that are free to change may differ, and with `extend`, the fields of
    `EXTENDABLE`. Raise ValueError if others do, or the run cannot go on.
    """
    if resume is None:
        return []
    changed = changes(config, resume, workdir)
    allowed = FREE_TO_CHANGE + (EXTENDABLE if extend else [])
    if refused := [change for change in changed if change["field"] not in allowed]:
        hint = ""
        if all(change["field"] in EXTENDABLE for change in refused):
            keeps = " --keep-optimizer" if hasattr(config, "keep_optimizer") else ""
            hint = (
                "; to end or go on with these values, pass --extend; to start a "
                f"separate run, --init-from {workdir}{keeps} with a new --workdir"
            )
        record = f"or give {workdir / 'config.json'} first, which has them, "
        if any(change["field"] == "data.fingerprint" for change in refused):
            record = ""  # other examples, or rows in memory
        raise ValueError(
            f"{workdir} belongs to another run: {_describe(refused)}. Repeat its "
            f"options, {record}or choose another --workdir{hint}."
        )
    if config.num_steps < resume.step:
        raise ValueError(
            f"num_steps={config.num_steps} but {workdir} is at step {resume.step} "
            f"already; give at least as many (--num-steps {resume.step} --extend ends "
            "the run there), or fork an earlier checkpoint by `bert-jax fork`."
        )
    require(
        resume.has_optimizer or is_finished(config, resume),
        f"{workdir} ended at step {resume.step} without its optimizer's state "
        "(keep_optimizer_states=none) and cannot go on; start another run from it by "
        "--init-from.",
    )
    return changed


def _describe(changed: list[JsonObject]) -> str:
    return "; ".join(
        f"{change['field']} was {change['before']!r} and is {change['now']!r}"
        for change in changed
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


def started_from(run: Run[RunConfig]) -> JsonObject:
    """Return what identifies the files that a run of several processes starts from.

    Each reads its own of one name, or a run's that trains on meanwhile.
    """
    if jax.process_count() == 1:
        return {}
    source, tokenizer = run.source, run.tokenizer
    if isinstance(source, epath.Path):  # a score may be added to its manifest
        content = content_checksum({"files": read_manifest(source)["files"]})
    else:
        content = params_fingerprint(source or {})
    return {
        "the content of init_from": content,
        "the content of teacher": params_fingerprint(run.task.fixed_params),
        "the content of tokenizer": tokenizer.fingerprint if tokenizer else "",
    }


def write_run_files(run: Run[RunConfig]) -> Resume | None:
    """Write config.json and the tokenizer, after all processes agree on the config.

    The history in config.json gets an entry when the run starts, when its length,
    learning rate or validation scores change, and when the machine changes. Return
    `run.resume` with the new history.
    """
    workdir, resume, changed = run.workdir, run.resume, list(run.changed)
    check_same_options(to_dict(run.config) | started_from(run))

    def write() -> list[JsonObject]:
        workdir.mkdir(parents=True, exist_ok=True)
        clear_newer_steps(workdir, resume)
        step, history = (resume.step, list(resume.history)) if resume else (0, [])
        last = next((e for e in reversed(history) if isinstance(e, dict)), {})
        if changed:
            say(f"Changed at step {step}: {_describe(changed)}.")
        if line := fresh_scores_line(changed, step):
            say(line)
            # Before the history tells it: a run that is killed here does it again.
            for complete in complete_steps(workdir / CHECKPOINTS):
                drop_score(workdir / CHECKPOINTS / str(complete), changed)
        if line := core_count_line(last):
            say(line)
        # What the bits of a run depend on, besides its configuration.
        entry: JsonObject = {
            "backend": jax.default_backend(),
            "device_kind": jax.devices()[0].device_kind,
            "cpu_cores": num_cores(),
            "jax": jax.__version__,
        }
        if changed:
            entry["changed"] = changed
        if any(last.get(name) != value for name, value in entry.items()):
            history.append({"step": step, **entry})
        write_json(to_dict(run.config) | {HISTORY: history}, workdir / "config.json")
        assert run.tokenizer is not None, "a run that trains has a tokenizer"
        run.tokenizer.save(workdir / "tokenizer")
        return history

    history = run_on_primary(write)
    return dataclasses.replace(resume, history=history) if resume else None


def is_finished(config: RunConfig, resume: Resume) -> bool:
    """Whether a run is at its last step, or ended early without its optimizer."""
    ended_early = not resume.has_optimizer and all(
        resume.config.get(name) == getattr(config, name)
        for name in ("num_steps", "patience")
    )
    is_last = resume.step == config.num_steps or (ended_early and config.patience > 0)
    return is_last and not resume.problems


def final_scores(
    workdir: epath.Path, config: RunConfig, resume: Resume | None
) -> dict[str, float] | None:
    """Return the scores at the last step, which are finite; None: not there yet.

    Of a run that now ends sooner, config.json has yet to tell it.
    """
    scores = None
    if resume is not None and is_finished(config, resume):
        if resume.has_optimizer and resume.config.get("num_steps") != config.num_steps:
            return None
        scores = read_scores(workdir / METRICS, resume.step)
    finite = finite_scores(broadcast_from_primary(scores), config.num_steps)
    has_ended = resume is not None and not resume.has_optimizer
    return finite if finite or has_ended else None


def drop_optimizer_states(workdir: epath.Path, config: RunConfig) -> None:
    """Remove the optimizer's states of a finished run, unless they are to be kept."""
    if config.keep_optimizer_states == "all" or not is_primary():
        return
    steps = [
        workdir / CHECKPOINTS / str(n) for n in complete_steps(workdir / CHECKPOINTS)
    ]
    if size := sum(map(drop_optimizer_state, steps)):
        say(
            f"Removed the optimizer's state from {len(steps)} checkpoints: "
            f"{size / 1e6:,.1f} MB."
        )


def start_scores(workdir: epath.Path) -> dict[str, float]:
    """Return the validation scores before the first step.

    {}: the run's head was random, or later scores are not comparable with these.
    """

    def scores() -> dict[str, float]:
        config = read_json_object(workdir / "config.json", "restore it from a copy")
        history = config.get(HISTORY, [])
        is_comparable = Resume(0, {}, history, []).incomparable_until < 0
        return (is_comparable and read_scores(workdir / METRICS, 0)) or {}

    return run_on_primary(scores)


def best_scores(workdir: epath.Path) -> dict[str, float]:
    """Return the validation scores of the best checkpoint, by `metrics.jsonl`."""

    def scores() -> dict[str, float]:
        best, _ = best_verified_step(workdir / CHECKPOINTS)
        values = None if best is None else read_scores(workdir / METRICS, best)
        if values is not None:
            say(f"The best checkpoint is that of step {best}.")
        return values or {}

    return run_on_primary(scores)
