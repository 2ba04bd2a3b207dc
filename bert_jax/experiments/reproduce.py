"""An experiment on one page: plan it, run its cells, write its tables."""

import dataclasses
import math
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from bert_jax.config.checks import did_you_mean, require
from bert_jax.config.serialization import differences, to_dict
from bert_jax.data.records import open_dataset
from bert_jax.distributed.peaks import peak_flops_per_second
from bert_jax.experiments.budgets import BUDGETS
from bert_jax.experiments.catalogue import EXPERIMENTS
from bert_jax.experiments.cells import Cell
from bert_jax.experiments.design import (
    Budget,
    Experiment,
    Finetuning,
    Probe,
    digest,
)
from bert_jax.experiments.inputs import LIBRARIES, Inputs, file_hashes, parse_task
from bert_jax.experiments.plots import write_plots
from bert_jax.experiments.summary import summarize
from bert_jax.experiments.tables import csv_table, markdown
from bert_jax.model.flops import finetuning_flops
from bert_jax.storage.atomic import require_empty
from bert_jax.storage.files import (
    JsonObject,
    atomic_write,
    read_json_object,
    write_json,
)
from bert_jax.terminal.messages import say

PROTOCOL = "protocol.json"
_SMOOTH_FLOPS = 2e15
_UTILISATION = 0.35
"""Fraction of a device's FLOP/s that training is assumed to reach, for the estimate."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """An experiment, what it is made of, and where."""

    experiment: Experiment
    budget: Budget
    inputs: Inputs
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
        num_points = {v.name: len(v.shares) for v in self.experiment.variants}
        return self.budget.seeds * sum(
            isinstance(measure, Finetuning) * num_points[row.variant]
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
            f"About {self.flops:.2g} FLOPs and {hours:.1f} hours on {device}, where "
            f"training is assumed to reach {rate / 1e9:,.0f} GFLOP/s."
        )


def make_plan(
    experiment: str,
    budget: Budget,
    root: str | os.PathLike[str],
    text: Sequence[str] = (),
    tokenizer: str = "",
    tasks: Sequence[str] = (LIBRARIES,),
) -> Plan:
    """Return what an experiment would do; nothing is written.

    Args:
        root: the directory of all its files.
        text: files to pretrain on; none: the embedded corpus.
        tokenizer: its directory; empty: one is learned from the text.
        tasks: as `parse_task` takes.

    Raises:
        ValueError: an option is invalid, or `root` has another experiment.
        FileExistsError: `root` has other files.
    """
    path = Path(root)
    _check_experiment(experiment, budget, text)
    files = tuple(parse_task(task, path) for task in tasks)
    names = [task.name for task in files]
    require(bool(names), f"tasks is empty; name one, such as {LIBRARIES}.")
    require(
        len(set(names)) == len(names),
        f"tasks={' '.join(names)} has a name twice; give each its own.",
    )
    inputs = Inputs(path, tuple(text), tokenizer, files)
    inputs.check(budget.finetuning)
    plan = Plan(EXPERIMENTS[experiment](budget, names), budget, inputs, path)
    _check_measures(plan)
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
        bool(text) or budget.name == "toy",
        f"budget={budget.name} needs --input: the embedded corpus of three million "
        "tokens is too small for it.",
    )


def _check_measures(plan: Plan) -> None:
    """Raise ValueError if features are to be measured on sentences to tag."""
    for row in plan.experiment.rows:
        for measure in row.measures:
            if isinstance(measure, Probe):
                task = plan.inputs.task(measure.task)
                require(
                    task.task == "text-classification",
                    f"{plan.experiment.name} measures features of whole texts, but "
                    f"the task {task.name} is {task.task}; leave it out.",
                )


def options_of(plan: Plan) -> JsonObject:
    """Return everything that decides the results, besides the content of files."""
    return {
        "experiment": to_dict(plan.experiment),
        "budget": to_dict(plan.budget),
        "input": list(plan.inputs.text),
        "tokenizer": plan.inputs.tokenizer,
        "tasks": [
            [task.name, task.task]
            + ([] if task.name == LIBRARIES else [task.train, task.test])
            for task in plan.inputs.tasks
        ],
    }


def _check_protocol(plan: Plan) -> None:
    path = plan.root / PROTOCOL
    written = read_json_object(
        epath.Path(path), "name another --output, or remove the directory."
    )
    changed = differences(written.get("options", {}), options_of(plan))
    if changed:
        name, before, now = changed[0]
        raise ValueError(
            f"{plan.root} has an experiment with other options: {name} was "
            f"{before!r:.120} and is {now!r:.120}. Repeat its options, or name another "
            "--output."
        )


def _write_protocol(plan: Plan) -> str:
    """Write the protocol with hashes of all inputs; return its own hash.

    Raises:
        ValueError: the inputs are not those of the results that are there.
    """
    kinds = sorted({variant.pairs for variant in plan.experiment.variants})
    inputs = {
        "rows": {k: open_dataset(plan.inputs.dataset(k)).fingerprint for k in kinds},
        "tasks": {
            f"{task.name} {split}": next(iter(file_hashes([path]).values()))
            for task in plan.inputs.tasks
            for split, path in (("train", task.train), ("test", task.test))
        },
    }
    path = epath.Path(plan.root / PROTOCOL)
    options = options_of(plan)
    if path.exists():
        before = read_json_object(path, "name another --output.").get("inputs", inputs)
        for name, old, new in differences(before, inputs):
            raise ValueError(
                f"{name} has changed since {plan.root} was begun: its hash was {old} "
                f"and is {new}; restore the file, or name another --output."
            )
    write_json({"options": options, "inputs": inputs}, path)
    return digest([options, inputs])


def reproduce(plan: Plan) -> list[Path]:
    """Run what is not done yet, and write tables and plots; return their paths.

    A call on the same directory goes on where another was stopped. The tables are
    written again after every seed.

    Raises:
        ValueError: the text or a task is unusable, or has changed.
        InterruptedRun: a signal stopped a run, with a complete checkpoint.
    """
    plan.root.mkdir(parents=True, exist_ok=True)
    if not (plan.root / PROTOCOL).exists():
        write_json({"options": options_of(plan)}, epath.Path(plan.root / PROTOCOL))
    budget = plan.budget
    kinds = {variant.pairs for variant in plan.experiment.variants}
    plan.inputs.make(kinds, budget.vocab_size, budget.sequence_length)
    protocol = _write_protocol(plan)
    cells, last = plan.cells, plan.experiment.variants[-1].name
    paths: list[Path] = []
    for number, cell in enumerate(cells, 1):
        say(f"Cell {number} of {len(cells)}: {cell.variant.name}, seed {cell.seed}")
        cell.run(plan.experiment)
        if cell.variant.name == last:
            paths = write_results(plan, protocol)
    return paths


def write_results(plan: Plan, protocol: str) -> list[Path]:
    """Write the tables and plots of the results that are there; return their paths."""
    summary = summarize(plan.experiment, plan.cells)
    pages = {
        "results.md": markdown(summary, plan.budget, protocol),
        "results.csv": csv_table(summary, plan.budget),
    }
    for name, text in pages.items():
        atomic_write(plan.root / name, text.encode())
    plots = write_plots(summary, plan.budget, plan.root)
    return [*(plan.root / name for name in pages), *plots]


def device_flops_per_second(dtype: str) -> tuple[float, str]:
    """Return the FLOP/s that training may reach on this device, and its name.

    From the peak of its data sheet, or where that is unknown, from a matrix product.
    """
    device = jax.devices()[0]
    peak = peak_flops_per_second(device.device_kind)
    if peak is None:
        peak = _matrix_product_flops(dtype)
    return _UTILISATION * peak, device.device_kind


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


def budget_of(name: str, flops: float = 0.0, seeds: int = 0) -> Budget:
    """Return a budget by its name, with another number of FLOPs or seeds if given.

    Raises:
        ValueError: there is no such budget, or a number is negative.
    """
    require(name in BUDGETS, f"budget={name!r:.40} must be {', '.join(BUDGETS)}.")
    require(flops >= 0 and math.isfinite(flops), f"flops={flops} must be at least 0.")
    require(seeds >= 0, f"seeds={seeds} must be at least 0.")
    budget = BUDGETS[name]
    return dataclasses.replace(
        budget, flops=flops or budget.flops, seeds=seeds or budget.seeds
    )
