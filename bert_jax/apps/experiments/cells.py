"""A cell of an experiment: one variant with one seed, pretrained and measured.

Several processes train together. The primary one measures, and writes the results.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import operator
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from etils import epath

from bert_jax.apps.experiments.design import (
    Budget,
    Experiment,
    Measure,
    Probe,
    RowSpec,
    TaskScore,
    Variant,
    with_changes,
)
from bert_jax.apps.experiments.inputs import ExperimentInputs
from bert_jax.apps.experiments.measures import (
    finetuned_items,
    probe_items,
    validation_items,
)
from bert_jax.apps.experiments.results import Result, write_result
from bert_jax.checkpoints.steps import CHECKPOINTS, list_steps
from bert_jax.config import PretrainConfig
from bert_jax.distributed.collectives import run_on_primary
from bert_jax.model.flops import pretraining_flops
from bert_jax.runs.average import average
from bert_jax.runs.finetuning import finetune
from bert_jax.runs.pretraining import open_for, pretrain
from bert_jax.storage.files import atomic_write, read_json_object, write_json
from bert_jax.training.faults import DivergedRun

HELD_OUT_SEED = 1000
"""The seed of the runs that choose a learning rate; no table has it."""
_STAGE_SEED = 10_000
_CHECKPOINT_STEPS = 2_000


@dataclasses.dataclass(frozen=True)
class Point:
    """A state of a variant that is measured."""

    fraction: float
    """Its fraction of the FLOPs."""
    steps: int
    """Of all stages."""
    predicted: float
    """Tokens that were predicted, about."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One variant with one seed, in a directory of its own."""

    root: Path
    budget: Budget
    inputs: ExperimentInputs
    variant: Variant
    seed: int

    @property
    def directory(self) -> Path:
        return self.root / "cells" / self.variant.name / f"seed_{self.seed}"

    def result_path(self, row: RowSpec, measure: Measure, fraction: float) -> Path:
        name = f"{slug(row.name)}--{slug(measure.column)}--{fraction:.4f}.npz"
        return self.directory / "results" / name

    @property
    def diverged(self) -> Path:
        """The file that says why there are no results: the loss was not finite."""
        return self.directory / "diverged.txt"

    def run(self, experiment: Experiment) -> None:
        """Pretrain and measure what is not measured yet; a diverged run ends the cell.

        Raise InterruptedRun if a signal stopped a run, with a complete checkpoint.
        """
        if run_on_primary(self.diverged.exists):
            return
        rows = [row for row in experiment.rows if row.variant == self.variant.name]
        try:
            for fraction in self.variant.fractions:
                self._run_until(fraction, rows)
        except DivergedRun as error:
            content = f"{error}\n".encode()
            run_on_primary(lambda: atomic_write(self.diverged, content))

    def _run_until(self, fraction: float, rows: Sequence[RowSpec]) -> None:
        measures = [(row, measure) for row in rows for measure in row.measures]
        paths = [self.result_path(row, measure, fraction) for row, measure in measures]
        done = run_on_primary(lambda: [path.exists() for path in paths])
        missing = list(itertools.compress(measures, map(operator.not_, done)))
        if missing:
            start = time.monotonic()
            model = self.pretrain(fraction)
            for row, measure in missing:
                start = self._measure(row, measure, fraction, model, start)

    def pretrain(self, fraction: float) -> Path:
        """Pretrain until a fraction of the FLOPs; return the workdir of the model."""
        rate = {"peak_learning_rate": self._best_rate()} if self.variant.rates else {}
        # A run that was measured before has fewer steps of the same schedule.
        extend = len(self.variant.fractions) > 1
        workdir = self.directory
        for config, workdir in self._stages(fraction):
            run_on_primary(functools.partial(_remove_newer, workdir, config.num_steps))
            pretrain(config.changed(optimizer=rate), workdir, extend)
        if self.variant.num_averaged > 1:
            output = workdir.with_name("average")
            run_on_primary(functools.partial(_write_average, workdir, output))
            return output
        return workdir

    def _stages(self, fraction: float) -> Iterator[tuple[PretrainConfig, Path]]:
        """Yield the configuration and the workdir of each stage until `fraction`."""
        start, source = 0.0, ""
        for number, stage in enumerate(self.variant.stages):
            if fraction <= start:
                return
            config = stage_config(self.budget, self.inputs, self.variant, number)
            part = min(1.0, (fraction - start) / stage.fraction)
            steps = max(1, round(part * config.num_steps))
            workdir = self.directory / f"pretraining_{number}"
            num_averaged = self.variant.num_averaged
            interval = min(max(1, steps // 4), _CHECKPOINT_STEPS)
            if num_averaged > 1:
                interval = max(1, steps // (10 * (num_averaged - 1)))
            own = config.changed(
                # No stage has the rows of another in the same order.
                seed=self.seed + _STAGE_SEED * number,
                init_from=source,
                num_steps=steps,
                eval_every=steps,
                checkpoint_every=interval,
                keep_checkpoints=num_averaged,
            )
            yield own, workdir
            start, source = start + stage.fraction, str(workdir)

    def _best_rate(self) -> float:
        """Return the learning rate with the least validation loss, of another seed."""
        path = epath.Path(self.directory.parent / "rate.json")
        if not run_on_primary(path.exists):
            losses = {}
            for rate in self.variant.rates:
                root = self.root / "rates" / f"{rate:g}"
                held_out = Cell(
                    root, self.budget, self.inputs, self.variant, HELD_OUT_SEED
                )
                losses[rate] = math.inf
                with contextlib.suppress(DivergedRun):
                    for config, workdir in held_out._stages(1.0):
                        own = config.changed(optimizer={"peak_learning_rate": rate})
                        scores = pretrain(own, workdir)
                    losses[rate] = scores["loss"]
            best = min(losses, key=losses.__getitem__)

            def write() -> None:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json({"rate": best, "losses": list(losses.items())}, path)

            run_on_primary(write)
        remedy = f"remove {path.parent} to choose again."
        return run_on_primary(lambda: float(read_json_object(path, remedy)["rate"]))

    def _measure(
        self, row: RowSpec, measure: Measure, fraction: float, model: Path, start: float
    ) -> float:
        """Write a result, the work for which began at `start`; return the time now."""
        path = self.result_path(row, measure, fraction)
        workdir = self.directory / path.stem
        if isinstance(measure, TaskScore):
            task = self.inputs.task(measure.task)
            own = (("init_from", str(model)), ("seed", self.seed), *measure.changes)
            config = with_changes(task.config(self.budget.finetuning), own)
            finetune(config, workdir, self.root / "examples")

        def write() -> None:
            if isinstance(measure, TaskScore):
                task = self.inputs.task(measure.task)
                items, kind = finetuned_items(task, workdir)
            elif isinstance(measure, Probe):
                task = self.inputs.task(measure.task)
                items, kind = probe_items(measure, task, self.budget, model)
            else:
                dataset = self.inputs.dataset(self.variant.pairs)
                items, kind = validation_items(measure, self.budget, dataset, model)
            write_result(path, Result(items, kind, time.monotonic() - start))
            # Its scores are kept, its parameters are not.
            shutil.rmtree(workdir / CHECKPOINTS, ignore_errors=True)

        run_on_primary(write)
        return time.monotonic()

    def points(self) -> list[Point]:
        """Return the states that are measured, in order."""
        points = []
        for fraction in self.variant.fractions:
            steps, predicted = 0, 0.0
            configs = (config for config, _ in self._stages(fraction))
            for config, stage in zip(configs, self.variant.stages, strict=False):
                length = self.budget.sequence_length // stage.divisor
                steps += config.num_steps
                predicted += config.num_steps * predicted_tokens(config, length)
            points.append(Point(fraction, steps, predicted))
        return points


def _remove_newer(workdir: Path, num_steps: int) -> None:
    """Remove a run of more steps: a result of before its newest step is gone."""
    steps = list_steps(epath.Path(workdir / CHECKPOINTS))
    if max(steps, default=0) > num_steps:
        shutil.rmtree(workdir)


def _write_average(workdir: Path, output: Path) -> None:
    shutil.rmtree(output, ignore_errors=True)
    steps = list_steps(epath.Path(workdir / CHECKPOINTS))
    average(str(workdir), steps, epath.Path(output))


def stage_config(
    budget: Budget, inputs: ExperimentInputs, variant: Variant, number: int
) -> PretrainConfig:
    """Return the configuration of a whole stage; its steps follow from the FLOPs."""
    stage = variant.stages[number]
    path = inputs.dataset(variant.kind(stage))
    config = with_changes(budget.pretraining, (("data.path", path), *stage.changes))
    dataset, resolved = open_for(config, verify=False)
    rows, tokens = resolved.batch_size, dataset.sequence_length
    predictions = max(1, round(predicted_tokens(resolved, tokens) / rows))
    step_flops = pretraining_flops(resolved.model, rows, tokens, predictions)
    steps = max(1, round(budget.flops * stage.fraction / step_flops))
    return config.changed(
        num_steps=steps, optimizer={"decay_steps": steps}, log_every=max(1, steps // 20)
    )


def predicted_tokens(config: PretrainConfig, length: int) -> float:
    """Return about how many tokens of full rows a step predicts."""
    if config.objective == "causal_lm":
        return config.batch_size * (length - 1.0)
    masking = config.masking
    rates = (masking.rate, masking.final_rate or masking.rate)
    return config.batch_size * length * sum(rates) / 2


def slug(name: str) -> str:
    """Return a name as a file name: letters, digits and single underscores."""
    return re.sub(r"[^A-Za-z0-9.]+", "_", name).strip("_")
