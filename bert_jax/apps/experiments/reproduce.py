"""An experiment on one page: plan it, run its cells, write its tables."""

import dataclasses
import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from bert_jax.apps.experiments.budgets import BUDGETS
from bert_jax.apps.experiments.catalogue import EXPERIMENTS
from bert_jax.apps.experiments.cells import Cell
from bert_jax.apps.experiments.design import Budget, Experiment, TaskScore
from bert_jax.apps.experiments.inputs import LIBRARIES, ExperimentInputs, parse_task
from bert_jax.apps.experiments.plots import write_plots
from bert_jax.apps.experiments.summary import summarize
from bert_jax.apps.experiments.tables import markdown, results_table, seeds_table
from bert_jax.config.checks import did_you_mean, require
from bert_jax.config.serialization import differences, to_dict
from bert_jax.data.records import open_dataset
from bert_jax.distributed.collectives import is_primary, run_on_primary
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.peaks import peak_flops_per_second
from bert_jax.distributed.startup import check_same_options, open_workdir
from bert_jax.model.flops import finetuning_flops
from bert_jax.storage.atomic import absolute, local_output, require_empty
from bert_jax.storage.files import (
    JsonObject,
    atomic_write,
    read_json_object,
    write_json,
)
from bert_jax.storage.manifest import sha256_of
from bert_jax.terminal.messages import say
from bert_jax.training.lock import run_lock

PROTOCOL = "protocol.json"
_SMOOTH_FLOPS, _MAX_EMBEDDED_FLOPS = 2e15, 1e14
_OF_PEAK, _OF_PRODUCT = 0.35, 0.6
"""Fractions that training is assumed to reach, for the estimate: of the peak of a data
sheet, and of the FLOP/s of a matrix product (measured on two cores at budget toy)."""


@dataclasses.dataclass(frozen=True)
class ReproductionPlan:
    """An experiment, what it is made of, and where."""

    experiment: Experiment
    budget: Budget
    inputs: ExperimentInputs
    root: Path

    @property
    def cells(self) -> list[Cell]:
        """All cells; every variant has a seed before any has the next."""
        return [
            Cell(self.root, self.budget, self.inputs, variant, seed)
            for seed in range(self.budget.seeds)
            for variant in self.experiment.variants
        ]

    @property
    def num_pretrainings(self) -> int:
        """Those of the held-out seed included."""
        variants = self.experiment.variants
        searches = sum(len(variant.rates) for variant in variants)
        return self.budget.seeds * len(variants) + searches

    @property
    def num_finetunings(self) -> int:
        num_points = {v.name: len(v.fractions) for v in self.experiment.variants}
        return self.budget.seeds * sum(
            isinstance(measure, TaskScore) * num_points[row.variant]
            for row in self.experiment.rows
            for measure in row.measures
        )

    @property
    def flops(self) -> float:
        """Model FLOPs of all runs, about."""
        tuning, length = self.budget.finetuning, self.budget.sequence_length
        step = finetuning_flops(self.budget.model, tuning.batch_size, length)
        finetuning = self.num_finetunings * tuning.num_steps * step
        return self.num_pretrainings * self.budget.flops + finetuning

    def lines(self) -> Iterator[str]:
        """Yield lines that say what will be run, and how long it takes."""
        rate, device = device_flops_per_second(self.budget.model.dtype)
        hours = self.flops / rate / 3600
        yield (
            f"{self.experiment.name} at budget {self.budget.name}: "
            f"{self.num_pretrainings} pretraining runs of {self.budget.flops:.2g} "
            f"FLOPs, {self.num_finetunings} fine-tuning runs, "
            f"{self.budget.seeds} seeds."
        )
        yield (
            f"About {self.flops:.2g} FLOPs, and {hours:.1f} hours on {device} if "
            f"training reaches {rate / 1e9:,.0f} GFLOP/s; compiling comes on top."
        )


def make_plan(
    experiment: str,
    budget: Budget,
    root: str | os.PathLike[str],
    text: Sequence[str] = (),
    tokenizer: str = "",
    tasks: Sequence[str] = (LIBRARIES,),
) -> ReproductionPlan:
    """Return what an experiment would do; nothing is written.

    Raise FileNotFoundError if a file is missing, FileExistsError if `root` has other
    files, ValueError if an option is invalid, or `root` has another experiment.

    Args:
        root: the local directory of all its files.
        text: files to pretrain on; none: the embedded corpus.
        tokenizer: its directory; empty: one is learned from the text.
        tasks: as `parse_task` takes.
    """
    path = Path(absolute(local_output(root)))
    _check_experiment(experiment, budget, text)
    for run in (budget.pretraining, budget.finetuning):
        make_mesh(run.mesh, run.batch_size, run.microbatches)  # do they fit together?
    files = tuple(parse_task(task, path) for task in tasks)
    names = [task.name for task in files]
    require(bool(names), f"tasks is empty; name one, such as {LIBRARIES}.")
    require(
        len(set(names)) == len(names),
        f"tasks={' '.join(names)} has a name twice; give each its own.",
    )
    require(
        experiment != "pooling" or any(task.is_text for task in files),
        f"tasks={' '.join(names)} has no task of texts, and pooling compares vectors "
        f"of texts; add one, such as {LIBRARIES}.",
    )
    inputs = ExperimentInputs(path, tuple(text), tokenizer, files)
    inputs.check(budget.finetuning)
    plan = ReproductionPlan(
        EXPERIMENTS[experiment](budget, files), budget, inputs, path
    )
    if (path / PROTOCOL).exists():
        _check_protocol(plan)
    else:
        require_empty(epath.Path(path))
    return plan


def _check_experiment(name: str, budget: Budget, text: Sequence[str]) -> None:
    """Raise ValueError if there is no such experiment, or not at this budget."""
    hint = did_you_mean(name, tuple(EXPERIMENTS)) or "."
    known = ", ".join(EXPERIMENTS)
    require(name in EXPERIMENTS, f"{name!r:.80} must be one of {known}{hint}")
    require(
        name != "size" or budget.flops >= _SMOOTH_FLOPS,
        f"size needs more than the {budget.flops:.2g} FLOPs a run of this budget: "
        f"below about {_SMOOTH_FLOPS:.0e} the loss does not fall smoothly with size "
        "(Deshpande et al. 2023); choose --budget small.",
    )
    require(
        bool(text) or budget.flops <= _MAX_EMBEDDED_FLOPS,
        f"{budget.flops:.2g} FLOPs a run need --input: the embedded corpus of three "
        f"million tokens is for at most {_MAX_EMBEDDED_FLOPS:.0e}.",
    )


def options_of(plan: ReproductionPlan) -> JsonObject:
    """Return what decides the results besides the content of files.

    Microbatches are left out: they change no more than the order of sums.
    """
    budget = to_dict(plan.budget)
    del budget["pretraining"]["microbatches"]
    return {
        "experiment": to_dict(plan.experiment),
        "budget": budget,
        "tasks": [[task.name, task.task] for task in plan.inputs.tasks],
    }


def _check_protocol(plan: ReproductionPlan) -> None:
    """Raise ValueError if the directory has another experiment, or was moved."""
    written = read_json_object(
        epath.Path(plan.root / PROTOCOL), "name another --output."
    )
    begun = written.get("directory")
    require(
        begun in (None, str(plan.root)),
        f"{plan.root} was begun as {begun}, which its runs name; move it back, or "
        "name another --output.",
    )
    if "inputs" not in written:
        return  # nothing was run yet
    changed = differences(written.get("options", {}), options_of(plan))
    # Another number of seeds adds cells, or leaves some out of the tables.
    for name, before, now in [c for c in changed if c[0] != "budget.seeds"][:1]:
        raise ValueError(
            f"{plan.root} has an experiment with other options: {name} was "
            f"{before!r:.120} and is {now!r:.120}. Repeat its options, or name another "
            "--output."
        )


def _make_inputs(plan: ReproductionPlan) -> str:
    """Make the inputs, and write the protocol; return its hash."""
    path = epath.Path(plan.root / PROTOCOL)
    before = read_json_object(path, "name another --output.") if path.exists() else {}
    values = {"directory": str(plan.root), "options": options_of(plan)}
    variants = plan.experiment.variants
    kinds = sorted({v.kind(stage) for v in variants for stage in v.stages})
    if "inputs" not in before:
        write_json(values, path)
        # They may be of other options: nothing was run with them.
        plan.inputs.remove(kinds)
    plan.inputs.make(kinds, plan.budget.vocab_size, plan.budget.sequence_length)
    rows = {k: open_dataset(plan.inputs.dataset(k)).fingerprint for k in kinds}
    files = {
        f"{task.name} {split}": sha256_of(epath.Path(file))
        for task in plan.inputs.tasks
        for split, file in (("train", task.train), ("test", task.test))
    }
    inputs: JsonObject = {"rows": rows, "tasks": files}
    for name, old, new in differences(before.get("inputs", inputs), inputs)[:1]:
        raise ValueError(
            f"{name} has changed since {plan.root} was begun: its hash was {old} "
            f"and is {new}; restore the file, or name another --output."
        )
    write_json(values | {"inputs": inputs}, path)
    text = json.dumps([values["options"], inputs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def reproduce(plan: ReproductionPlan) -> list[Path]:
    """Run what is not done yet, and write tables and plots; return their paths.

    A call on the same directory goes on where another was stopped. The tables are
    written again after every seed. Of several processes, the primary one makes the
    inputs, measures and writes. Raise ValueError if the text or a task is unusable, or
    has changed, InterruptedRun if a signal stopped a run, with a complete checkpoint.
    """
    with run_lock(open_workdir(plan.root)):
        check_same_options(options_of(plan))
        protocol = run_on_primary(lambda: _make_inputs(plan))
        cells, last = plan.cells, plan.experiment.variants[-1].name
        paths: list[Path] = []
        for number, cell in enumerate(cells, 1):
            if is_primary():
                name = f"{cell.variant.name}, seed {cell.seed}"
                say(f"Cell {number} of {len(cells)}: {name}")
            cell.run(plan.experiment)
            if cell.variant.name == last:
                names = run_on_primary(lambda: write_results(plan, protocol))
                paths = [plan.root / name for name in names]
    return paths


def write_results(plan: ReproductionPlan, protocol: str) -> list[str]:
    """Write the tables and plots of the results that are there; return their names."""
    summary = summarize(plan.experiment, plan.cells)
    if not summary.scores:
        return []
    pages = {
        "results.md": markdown(summary, plan.budget, protocol),
        "results.csv": results_table(summary, plan.budget),
        "seeds.csv": seeds_table(summary, plan.budget),
    }
    for name, text in pages.items():
        atomic_write(plan.root / name, text.encode())
    plots = write_plots(summary, plan.budget, plan.root)
    return [*pages, *(path.name for path in plots)]


def device_flops_per_second(dtype: str) -> tuple[float, str]:
    """Return the FLOP/s that training may reach on this device, and its name.

    From the peak of its data sheet, or where that is unknown, from a matrix product.
    """
    devices = jax.devices()
    kind, count = devices[0].device_kind, len(devices)
    peak = peak_flops_per_second(kind)
    name = kind if count == 1 else f"{count} devices of {kind}"
    if peak is None:
        return _OF_PRODUCT * _matrix_product_flops(dtype), name
    return _OF_PEAK * count * peak, name


def _matrix_product_flops(dtype: str, size: int = 512, repeats: int = 8) -> float:
    """Return the FLOP/s of the product of two matrices, the median of some calls."""
    matrix = jnp.ones((size, size), dtype)
    product = jax.jit(jnp.matmul)
    product(matrix, matrix).block_until_ready()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        product(matrix, matrix).block_until_ready()
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / float(np.median(seconds))


def budget_of(
    name: str, flops: float = 0.0, seeds: int = 0, microbatches: int = 1
) -> Budget:
    """Return a budget by its name, with another number of FLOPs or seeds if given.

    Raise ValueError if there is no such budget, or a number is negative.
    """
    require(name in BUDGETS, f"budget={name!r:.40} must be {', '.join(BUDGETS)}.")
    require(flops >= 0 and math.isfinite(flops), f"flops={flops} must be at least 0.")
    require(seeds >= 0, f"seeds={seeds} must be at least 0.")
    budget = BUDGETS[name]
    return dataclasses.replace(
        budget,
        flops=flops or budget.flops,
        seeds=seeds or budget.seeds,
        pretraining=budget.pretraining.changed(microbatches=microbatches),
    )
