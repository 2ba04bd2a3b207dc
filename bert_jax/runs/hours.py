"""The number of steps that a pretraining run takes in some hours on its devices."""

import dataclasses
import math
import statistics
from typing import Any

from bert_jax.config import PretrainConfig
from bert_jax.config.checks import MAX_INT, require
from bert_jax.distributed.collectives import broadcast_from_primary, is_primary
from bert_jax.runs.measure import measure
from bert_jax.terminal.messages import say
from bert_jax.training.run import Run

_STEPS = 10
"""Steps that are measured: a fixed number, since all processes take part in each."""
_FORWARD = 1 / 3
"""The forward pass of a step, which an evaluation of as many rows takes."""


def require_hours(hours: float | None) -> None:
    """Raise ValueError unless `hours` is a time, or None."""
    require(
        hours is None or (math.isfinite(hours) and hours > 0),
        f"hours={hours} must be finite and greater than 0.",
    )


def config_for_hours(
    run: Run[PretrainConfig], hours: float, num_validation_rows: int
) -> PretrainConfig:
    """Return the configuration of a run with the steps that `hours` hold.

    Steps with random parameters are measured, and dropped: the run is that of as many
    `num_steps`. Warm-up and decay keep their shares of the steps. A run that is resumed
    has its number already, and is not measured. A collective: every process must call
    it.

    Args:
        num_validation_rows: the number of rows of an evaluation.

    Raises:
        ValueError: the time is too short for a step, or holds more steps than a run
            can count.
    """
    config = run.config
    if run.resume:
        number: Any = run.resume.config.get("num_steps")
        is_whole = type(number) is int and number > 0  # else `check_workdir` refuses it
        return with_steps(config, number) if is_whole else config
    first_step = config.data.first_step
    batch = run.task.batch(first_step)
    _, seconds = measure(run, batch, math.inf, _STEPS, math.inf)
    step = statistics.median(broadcast_from_primary(seconds))
    evaluations = num_validation_rows / config.batch_size / config.eval_every
    fitting = hours * 3600 / (step * (1 + _FORWARD * evaluations))
    takes = f"a step, which takes {step:.3g} s here"
    require(fitting >= 1, f"hours={hours:g} is too short for {takes}; give more.")
    require(
        first_step + fitting < MAX_INT,
        f"hours={hours:g} is too long for {takes}: a run has at most {MAX_INT:,} "
        "steps; give less.",
    )
    num_steps = int(float(f"{int(fitting):.2g}"))
    config = with_steps(config, first_step + num_steps)
    if is_primary():
        say(
            f"{hours:g} hours: {num_steps:,} steps of {step:.3g} s, the median of "
            f"{len(seconds)}; warm-up and decay keep their shares of the steps: "
            f"warm-up takes {config.optimizer.warmup_steps:,}."
        )
    return config


def with_steps(config: PretrainConfig, num_steps: int) -> PretrainConfig:
    """Return the configuration of another length, with a schedule in proportion."""

    def scaled(steps: int) -> int:
        return round(steps * num_steps / config.num_steps)

    optimizer = dataclasses.replace(
        config.optimizer,
        warmup_steps=scaled(config.optimizer.warmup_steps),
        decay_steps=scaled(config.optimizer.decay_steps),
    )
    return dataclasses.replace(config, num_steps=num_steps, optimizer=optimizer)
