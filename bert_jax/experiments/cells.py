"""A cell of an experiment: one variant with one seed, pretrained and measured."""

import dataclasses
import io
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from etils import epath

from bert_jax.checkpoints.steps import CHECKPOINTS
from bert_jax.config import PretrainConfig
from bert_jax.data.records import Dataset
from bert_jax.experiments.bootstrap import Items, ScoreKind
from bert_jax.experiments.design import (
    Budget,
    Changes,
    Experiment,
    Finetuning,
    Measure,
    Probe,
    Row,
    Variant,
    with_changes,
)
from bert_jax.experiments.inputs import Inputs
from bert_jax.experiments.measures import (
    finetuned_items,
    masked_items,
    probe_items,
)
from bert_jax.runs.finetuning import finetune
from bert_jax.runs.pretraining import open_for, pretrain
from bert_jax.storage.files import atomic_write, read_json_object, write_json
from bert_jax.tasks.pretraining import PretrainingTask

HELD_OUT_SEED = 1000
"""The seed of the runs that choose a learning rate; no table has it."""


@dataclasses.dataclass(frozen=True)
class Result:
    """What a measure gave, with one seed."""

    items: Items
    kind: ScoreKind
    seconds: float
    """Wall time since the cell's last start or result, pretraining included."""


@dataclasses.dataclass(frozen=True)
class Point:
    """A state of a variant that is measured."""

    share: float
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
    inputs: Inputs
    variant: Variant
    seed: int

    @property
    def directory(self) -> Path:
        return self.root / "cells" / self.variant.name / f"seed_{self.seed}"

    def result_path(self, row: Row, measure: Measure, share: float) -> Path:
        """Return the file of the result of a measure."""
        name = f"{slug(row.name)}--{slug(measure.column)}--{share:.4f}.npz"
        return self.directory / "results" / name

    def run(self, experiment: Experiment) -> None:
        """Pretrain and measure what is not measured yet.

        Raises:
            InterruptedRun: a signal stopped a run, with a complete checkpoint.
        """
        rows = [row for row in experiment.rows if row.variant == self.variant.name]
        for share in self.variant.shares:
            missing = [
                (row, measure)
                for row in rows
                for measure in row.measures
                if not self.result_path(row, measure, share).exists()
            ]
            if missing:
                start = time.monotonic()
                model = self.pretrain(share)
                for row, measure in missing:
                    start = self._measure(row, measure, share, model, start)

    def pretrain(self, share: float) -> Path:
        """Pretrain until a fraction of the FLOPs; return the workdir of the model."""
        changes: Changes = ()
        if self.variant.rates:
            rate = self._best_rate()
            changes = (("optimizer.peak_learning_rate", rate),)
        workdir = self.directory
        for config, workdir in self._stages(share):
            # A run that ended earlier has fewer steps of the same schedule.
            pretrain(with_changes(config, changes), workdir, extend=True)
        return workdir

    def _stages(self, share: float) -> Iterator[tuple[PretrainConfig, Path]]:
        """Yield the configuration and the workdir of each stage until `share`."""
        start, source = 0.0, ""
        for number, stage in enumerate(self.variant.stages):
            if share <= start:
                return
            config = stage_config(self.budget, self.inputs, self.variant, number)
            part = min(1.0, (share - start) / stage.share)
            steps = max(1, round(part * config.num_steps))
            workdir = self.directory / f"pretraining_{number}"
            yield (
                dataclasses.replace(
                    config,
                    seed=self.seed,
                    init_from=source,
                    num_steps=steps,
                    eval_every=steps,
                    checkpoint_every=max(1, steps // 4),
                ),
                workdir,
            )
            start, source = start + stage.share, str(workdir)

    def _best_rate(self) -> float:
        """Return the learning rate with the least validation loss, of another seed."""
        path = epath.Path(self.directory.parent / "rate.json")
        if not path.exists():
            losses = {}
            for rate in self.variant.rates:
                held_out = dataclasses.replace(
                    self,
                    root=self.root / "rates" / f"{rate:g}",
                    variant=dataclasses.replace(self.variant, rates=()),
                    seed=HELD_OUT_SEED,
                )
                changes = (("optimizer.peak_learning_rate", rate),)
                for config, workdir in held_out._stages(1.0):
                    scores = pretrain(with_changes(config, changes), workdir)
                losses[rate] = scores["loss"]
            best = min(losses, key=losses.__getitem__)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json({"rate": best, "losses": list(losses.items())}, path)
        return float(read_json_object(path, "remove it to choose again.")["rate"])

    def _measure(
        self, row: Row, measure: Measure, share: float, model: Path, start: float
    ) -> float:
        """Write a result; return the time at its end.

        Args:
            start: when the work for it began.
        """
        path = self.result_path(row, measure, share)
        path.parent.mkdir(parents=True, exist_ok=True)
        workdir = self.directory / path.stem
        if isinstance(measure, Finetuning):
            items, kind = self._finetune(measure, workdir, model)
        elif isinstance(measure, Probe):
            task = self.inputs.task(measure.task)
            items, kind = probe_items(measure, task, self.budget, model)
        else:
            dataset = self.inputs.dataset(self.variant.pairs)
            items, kind = masked_items(measure, self.budget, dataset, model)
        end = time.monotonic()
        write_result(path, Result(items, kind, end - start))
        # Its scores are kept, its parameters are not.
        shutil.rmtree(workdir / CHECKPOINTS, ignore_errors=True)
        return end

    def _finetune(
        self, measure: Finetuning, workdir: Path, model: Path
    ) -> tuple[Items, ScoreKind]:
        task = self.inputs.task(measure.task)
        base = with_changes(task.config(self.budget.finetuning), measure.changes)
        config = dataclasses.replace(base, init_from=str(model), seed=self.seed)
        finetune(config, workdir, self.root / "examples")
        return finetuned_items(task, workdir)

    def points(self) -> list[Point]:
        """Return the states that are measured, in order."""
        points = []
        for share in self.variant.shares:
            steps, predicted = 0, 0.0
            for config, _ in self._stages(share):
                steps += config.num_steps
                predicted += config.num_steps * predicted_tokens(
                    config, self.budget.sequence_length
                )
            points.append(Point(share, steps, predicted))
        return points


def stage_config(
    budget: Budget, inputs: Inputs, variant: Variant, number: int
) -> PretrainConfig:
    """Return the configuration of a whole stage; its steps follow from the FLOPs.

    It needs the dataset of the variant.
    """
    stage = variant.stages[number]
    data = dataclasses.replace(
        budget.pretraining.data, path=inputs.dataset(variant.pairs)
    )
    base = dataclasses.replace(budget.pretraining, data=data, keep_checkpoints=1)
    config = with_changes(base, stage.changes)
    dataset, resolved = open_for(config, verify=False)
    steps = max(1, round(budget.flops * stage.share / step_flops(resolved, dataset)))
    optimizer = dataclasses.replace(config.optimizer, decay_steps=steps)
    return dataclasses.replace(
        config, optimizer=optimizer, num_steps=steps, log_every=max(1, steps // 20)
    )


def step_flops(config: PretrainConfig, dataset: Dataset) -> float:
    """Return the model FLOPs of a pretraining step."""
    task = PretrainingTask(config, dataset)
    return task.flops(task.batch(0))


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


def write_result(path: Path, result: Result) -> None:
    """Write a result atomically."""
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, items=result.items, kind=result.kind, seconds=result.seconds
    )
    atomic_write(path, buffer.getvalue())


def read_result(path: Path) -> Result:
    """Read a result.

    Raises:
        ValueError: the file is damaged.
    """
    try:
        with np.load(path) as file:
            kind: ScoreKind = "ratio" if str(file["kind"]) == "ratio" else "perplexity"
            return Result(file["items"], kind, float(file["seconds"]))
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ValueError(
            f"{path} is damaged; remove it, and its measure is made again."
        ) from error
