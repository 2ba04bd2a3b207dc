"""The number of steps that a pretraining run takes in some hours on its devices."""

import functools
import itertools
import math
import numbers
import time
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.config import PretrainConfig
from bert_jax.config.checks import MAX_INT, require
from bert_jax.distributed.collectives import broadcast_from_primary, is_primary
from bert_jax.terminal.messages import say
from bert_jax.training.interval import Clock
from bert_jax.training.loop import device_batches
from bert_jax.training.run import Run
from bert_jax.training.start import place_fixed_params
from bert_jax.training.step import with_fixed_params

_SHARE = 0.01
"""Of the time, for measuring."""
_LEAST, _MOST = 10, 100
"""Steps that are measured."""
_FORWARD = 1 / 3
"""The forward pass of a step, which an evaluation of as many rows takes."""


def require_hours(hours: float | None, extend: bool) -> None:
    """Raise ValueError unless `hours` is the time of a run's start, or None."""
    require(
        hours is None or not extend,
        f"hours={hours} is of a run's start; extend=True needs num_steps.",
    )
    is_time = isinstance(hours, numbers.Real) and math.isfinite(hours) and hours > 0
    rule = "must be finite and greater than 0"
    require(hours is None or is_time, f"hours={hours!r:.40} {rule}.")


def config_for_hours(
    run: Run[PretrainConfig], hours: float, num_validation_rows: int
) -> PretrainConfig:
    """Return the configuration of a run with the steps that `hours` hold.

    Steps of a state of zeros are measured, and dropped: the run is that of as many
    `num_steps`. Warm-up and decay keep their shares of the steps. A run that is resumed
    has its number already, and is not measured. A collective: every process must call
    it. Raise ValueError if the time is too short for a step, or holds more steps than a
    run can count.
    """
    config = run.config
    if run.resume:
        number: Any = run.resume.config.get("num_steps")
        is_whole = type(number) is int and number > 0  # else `check_workdir` refuses it
        return with_steps(config, number) if is_whole else config
    first_step = config.data.first_step
    step, num_measured = _seconds_a_step(run, hours * 3600)
    rows = min(num_validation_rows, config.eval_rows or num_validation_rows)
    evaluation = _FORWARD * rows / config.batch_size
    # A run is evaluated after its last step, however rarely before.
    fitting, every = hours * 3600 / step, config.eval_every
    fitting = min(fitting / (1 + evaluation / every), fitting - evaluation)
    takes = f"a step, which takes {step:.3g} s here"
    ends = f", and the evaluation at the end, {step * evaluation:.3g} s"
    require(fitting >= 1, f"hours={hours:g} is too short for {takes}{ends}; give more.")
    require(
        first_step + fitting < MAX_INT,
        f"hours={hours:g} is too long for {takes}: a run has at most {MAX_INT:,} "
        "steps; give less.",
    )
    num_steps = int(float(f"{int(fitting):.2g}"))
    config = with_steps(config, first_step + num_steps)
    if is_primary():
        say(
            f"{hours:g} hours: {num_steps:,} steps of {step:.3g} s, the mean of "
            f"{num_measured}; warm-up and decay keep their shares of the steps: "
            f"warm-up takes {config.optimizer.phases(config.schedule_steps)[0]:,}."
        )
    return config


def _seconds_a_step(run: Run[PretrainConfig], seconds: float) -> tuple[float, int]:
    """Return what a step takes with its data, and how many steps were measured.

    They follow each other as in training, so that waiting for data counts.
    """
    first = run.config.data.first_step
    take = with_fixed_params(run.train_step(), place_fixed_params(run.task, run.mesh))
    # Zeros take as long as random parameters, which are slow to draw.
    zeros = functools.partial(jax.tree.map, jnp.zeros_like, run.state_shapes)
    state = jax.jit(zeros, out_shardings=run.shardings)()
    clock, last = Clock(run.mesh.size, 1), first + 2 + _MOST
    with closing(device_batches(run.task, first, last, run.mesh, clock)) as batches:
        # The first step compiles and touches new memory.
        state, *_ = jax.block_until_ready(take(state, next(batches)))
        start = time.perf_counter()
        state, *_ = jax.block_until_ready(take(state, next(batches)))
        fitting = _SHARE * seconds / (time.perf_counter() - start)
        # All processes take part in as many.
        number = int(broadcast_from_primary(min(max(fitting, _LEAST), _MOST)))
        start = time.perf_counter()
        for batch in itertools.islice(batches, number):
            state, *_ = take(state, batch)
        jax.block_until_ready(state)
        return broadcast_from_primary((time.perf_counter() - start) / number), number


def with_steps(config: PretrainConfig, num_steps: int) -> PretrainConfig:
    """Return the configuration of another length, with a schedule in proportion."""

    def scaled(steps: int) -> int:
        return round(steps * num_steps / config.num_steps)

    optimizer, decay_steps = config.optimizer, scaled(config.optimizer.decay_steps)
    end, warmup_steps = decay_steps or num_steps, scaled(optimizer.warmup_steps)
    if optimizer.schedule == "constant":  # where both meet, both may be rounded up
        warmup_steps = min(warmup_steps, end - round(optimizer.decay_share * end))
    steps = {"warmup_steps": warmup_steps, "decay_steps": decay_steps}
    return config.changed(num_steps=num_steps, optimizer=steps)
