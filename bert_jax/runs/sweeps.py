"""Several fine-tuning runs: over seeds, and over the paper's grid."""

import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from etils import epath

from bert_jax.checkpoints.steps import CHECKPOINTS, read_config_as
from bert_jax.config import FinetuneConfig
from bert_jax.config.checks import MAX_SEED, require
from bert_jax.config.serialization import differences, from_dict, to_dict
from bert_jax.distributed import environment
from bert_jax.distributed.collectives import (
    is_primary,
    raise_on_all_processes,
    run_on_primary_first,
)
from bert_jax.distributed.startup import check_same_options, open_workdir
from bert_jax.inference.arguments import require_count
from bert_jax.pretrained import load_pretrained
from bert_jax.runs.finetuning import finetune
from bert_jax.runs.finetuning_examples import (
    chosen_config,
    each_line_once,
    say_on_primary,
)
from bert_jax.runs.finetuning_setup import prepare_finetuning, with_steps
from bert_jax.runs.init_from import pin_source
from bert_jax.runs.teacher import with_pinned_teacher
from bert_jax.runs.workdir import FREE_TO_CHANGE
from bert_jax.storage.files import JsonObject, write_json
from bert_jax.storage.manifest import escapes
from bert_jax.storage.runs_file import RUNS, read_runs_file
from bert_jax.tables.memory import RowsInMemory
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tasks.splits import changed_splits
from bert_jax.training.faults import DivergedRun
from bert_jax.training.lock import run_lock
from bert_jax.training.resume import require_no_other_files
from bert_jax.training.score_table import runs_json

LEARNING_RATES = (5e-5, 3e-5, 2e-5)
BATCH_SIZES = (16, 32)
NUM_EPOCHS = (2.0, 3.0, 4.0)
"""The values that worked well across all tasks (Devlin et al. 2018, A.3)."""


_CHANGES_SCORES = ("data.test", "data.validation", "patience", "rate_by_size")
"""Fields that one run may change when it is resumed, and several runs must share."""


@dataclasses.dataclass(frozen=True)
class SweepRun:
    """One of several runs."""

    name: str
    """The name of its directory."""
    setting: str
    """The same for runs that differ only by the seed."""
    config: FinetuneConfig


def run_name(setting: str, seed: int) -> str:
    return f"{setting}, seed {seed}".replace(", ", "_").replace(" ", "_")


def grid(config: FinetuneConfig, seeds: int, sweep: bool) -> Iterator[SweepRun]:
    """Yield the runs: each seed of each setting."""
    settings: Sequence[Any] = [
        (config.optimizer.peak_learning_rate, config.batch_size, config.num_epochs)
    ]
    if sweep:
        # With num_steps the number of epochs has no effect.
        choices = (config.num_epochs,) if config.num_steps else NUM_EPOCHS
        settings = list(itertools.product(LEARNING_RATES, BATCH_SIZES, choices))
    for rate, batch_size, epochs in settings:
        by_size = config.rate_by_size and not sweep
        rated = "by_size" if by_size else f"{rate:g}"
        setting = f"rate {rated}, batch {batch_size}, epochs {epochs:g}"
        for seed in range(config.seed, config.seed + seeds):
            name = run_name(setting, seed)
            own = config.changed(
                optimizer={"peak_learning_rate": rate},
                batch_size=batch_size,
                num_epochs=epochs,
                seed=seed,
                rate_by_size=by_size,
            )
            yield SweepRun(name, setting, own)


def with_pinned_models(
    config: FinetuneConfig, before: JsonObject | None
) -> FinetuneConfig:
    """Return the configuration with the same models and rows for all runs.

    Commits of models, and a row's length and a rate that are not given, are those of
    the record of an earlier start, `before`.
    """
    if before is None:
        return with_pinned_teacher(pin_source(config, None), None)
    data = before.get("data")
    length = data.get("max_length") if isinstance(data, dict) else None
    if isinstance(length, int) and not config.data.max_length:
        config = config.changed(data={"max_length": length})
    by_size = config.rate_by_size and bool(before.get("rate_by_size"))
    config = config.changed(rate_by_size=by_size)
    return with_pinned_teacher(pin_source(config, before), str(before.get("teacher")))


def finetune_runs(
    config: FinetuneConfig | str | os.PathLike[str],
    workdir: str | os.PathLike[str],
    seeds: int,
    sweep: bool = False,
    *,
    model: str | os.PathLike[str] = "",
    train: RowsInMemory | None = None,
    validation: RowsInMemory | None = None,
    test: RowsInMemory | None = None,
) -> list[JsonObject]:
    """Fine-tune once for each seed, and with `sweep` for each setting of the grid.

    Each run has a directory in `workdir`; only the best one keeps its checkpoints, and
    `load(workdir)` loads it. The same call again resumes. `config` and what follows `*`
    are as those of `finetune`.

    Returns:
        The name, setting, seed and scores of each run, as in `runs.json`.

    Raises:
        ValueError: `workdir` holds the runs of another configuration, or a dataset or
            a model, or another process trains runs in it; or as `finetune`.
    """
    sources = {"train": train, "validation": validation, "test": test}
    # Runs that differ in the seed share their compiled programs.
    environment.configure_jax(os.environ)
    root = open_workdir(workdir)
    with run_lock(root), each_line_once():
        with raise_on_all_processes():
            seeds = require_count("seeds", seeds)
            config = chosen_config(config, model, **sources)
            config, done = resolve_runs(config, root, seeds)
            names = {run["name"] for run in done}
            left = [run for run in grid(config, seeds, sweep) if run.name not in names]
            models = model_hashes(config) if left else []
        check_same_options(to_dict(config) | {"seeds": seeds, "sweep": sweep})
        shared: JsonObject = {"config": to_dict(config), "models": models}
        first = left[0].config if left else config
        schedule = first.optimizer.warmup_steps or first.optimizer.decay_steps
        if sweep and left and (schedule or first.profile_steps):
            # A run with fewer steps than its options say is refused before any begins.
            cache = root / "examples"
            prepare = functools.partial(prepare_finetuning, first, root, cache)
            number = len(run_on_primary_first(prepare).train.tokenized)
            for run in left:
                with_steps(run.config, number)
        for run in left:
            _add_run(run, done, shared, root)
    if not done:
        raise DivergedRun("No run kept finite parameters")
    return done


def resolve_runs(
    config: FinetuneConfig, root: epath.Path, seeds: int
) -> tuple[FinetuneConfig, list[JsonObject]]:
    """Return the configuration with what its runs share, and those that are done.

    Raise ValueError if `root` holds other runs or other files, or a seed is too large.
    """
    last = config.seed + seeds - 1
    require(
        last <= MAX_SEED,
        f"seeds={seeds} from seed={config.seed} on end at {last}, and the last seed is "
        f"{MAX_SEED}; give fewer, or a lower seed.",
    )
    if not (root / RUNS).exists():
        require_no_other_files(root)
        require(
            not (root / CHECKPOINTS).exists(),
            f"workdir={root} is that of one run, and seeds or a sweep make several; "
            "choose another --workdir.",
        )
        return with_pinned_models(config, None), []
    summary = read_runs_file(root)
    config = with_pinned_models(config, summary["config"])
    require_same_config(summary["config"], config, root / RUNS)
    for run in summary["runs"]:
        require(
            run["name"] == run_name(run["setting"], run["seed"]),
            f"{root / RUNS} has {run['name']!r:.80} for {run['setting']}, seed "
            f"{run['seed']}; restore it from a copy, or choose another --workdir.",
        )
    if "models" in summary:  # not of an older version
        models = summary["models"]
        # One that is gone is missed by the runs that are left, if there are any.
        with contextlib.suppress(FileNotFoundError):
            models = model_hashes(config)
        require(
            summary["models"] == models,
            f"{root / RUNS} lists runs from other files of {config.init_from}"
            f"{config.teacher and f' or {config.teacher}'}; choose another --workdir.",
        )
    require_same_examples(config, root / summary["runs"][0]["name"], root / RUNS)
    return config, summary["runs"]


def _add_run(
    run: SweepRun, done: list[JsonObject], shared: JsonObject, root: epath.Path
) -> None:
    """Train a run, add its scores to `done`, and write `runs.json`.

    The checkpoints of all but the best run are removed.
    """
    say_on_primary([f"{run.setting}, seed {run.config.seed}"])
    try:
        scores = finetune(run.config, root / run.name, root / "examples")
    except DivergedRun as error:
        say_on_primary([f"{run.name} is left out: {error}"])
        return
    own: JsonObject = {"name": run.name, "setting": run.setting}
    done.append(own | {"seed": run.config.seed, "scores": scores})
    # Only the scores that all runs have: an older version may have had others.
    common = set.intersection(*(set(other["scores"]) for other in done))
    for other in done:
        other["scores"] = {k: v for k, v in other["scores"].items() if k in common}
    if not is_primary():
        return
    values = shared | runs_json(done) | {"runs": done}
    write_json(values, root / RUNS)
    for other in done:
        checkpoints = root / other["name"] / CHECKPOINTS
        removable = other["name"] != values["best"] and checkpoints.exists()
        if removable and not escapes(root, checkpoints):  # a link's target stays
            checkpoints.rmtree()


def model_hashes(config: FinetuneConfig) -> list[str]:
    """Return the sha256 of each file of the models that runs start and learn from."""
    names = filter(None, (config.init_from, config.teacher))
    models = [load_pretrained(name, config.allow_extra) for name in names]
    files = [file for model in models for file in model.sources]
    # A run that ends may remove its optimizer's state.
    return [f["sha256"] for f in files if not f["path"].startswith("optimizer/")]


def require_same_examples(
    config: FinetuneConfig, run: epath.Path, path: epath.Path
) -> None:
    """Raise ValueError unless the files hold the examples of a run that is done."""
    if not (run / "config.json").exists():
        return
    before, data = read_config_as(run, "", FinetuneConfig), config.data
    places = {n: getattr(data, n) for n in ("path", "train", "validation", "test")}
    data = before.data.renamed.changed(**places)
    changed = changed_splits(finetuning_task(config.task, data, before.model))
    require(
        not changed,
        f"{path} lists runs with other examples of data.{' and data.'.join(changed)}; "
        "choose another --workdir.",
    )


def require_same_config(
    values: JsonObject, config: FinetuneConfig, path: epath.Path
) -> None:
    """Raise ValueError unless the runs that a file lists have this configuration."""
    try:
        # Fields that an older version did not have, count as their defaults.
        before = to_dict(from_dict(FinetuneConfig, values))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} lists runs of another kind, or is damaged: "
            f"{' '.join(str(error).split())} Choose another --workdir."
        ) from error
    changed = [
        "optimizer.peak_learning_rate" if name == "rate_by_size" else name
        for name, *_ in differences(before, to_dict(config))
        if name not in FREE_TO_CHANGE or name in _CHANGES_SCORES
    ]
    if changed:
        raise ValueError(
            f"{path} lists runs with another {', '.join(changed)}; repeat those "
            "options, or choose another --workdir."
        )
