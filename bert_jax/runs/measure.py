"""Take some training steps here, and drop them, to know what a run costs."""

import time

import jax

from bert_jax.config import RunConfig
from bert_jax.data.pipeline import Batch
from bert_jax.distributed.sharding import to_global_arrays
from bert_jax.runs.estimate import (
    Estimate,
    lower_step,
)
from bert_jax.training.run import Run
from bert_jax.training.start import place_fixed_params
from bert_jax.training.step import with_fixed_params

_SECONDS, _MAX_STEPS = 3.0, 20
"""Steps are taken until so many seconds have passed, but no more than so many steps."""


def measure(
    run: Run[RunConfig],
    batch: Batch,
    free: float,
    most: int = _MAX_STEPS,
    limit: float = _SECONDS,
) -> tuple[Estimate, list[float]]:
    """Return the compiler's figures of the training step, and the seconds of some.

    The parameters are random, and are dropped. No step is taken if it needs more than
    `free` bytes of each device.

    Args:
        most: steps to take, or fewer if `limit` seconds have passed.
    """
    program, step = lower_step(run, batch).program({})
    if not step.fits(free):
        return step, []
    state, rows = run.draw_state(), to_global_arrays(batch, run.mesh)
    take = with_fixed_params(program, place_fixed_params(run.task, run.mesh))
    seconds: list[float] = []
    begin = time.monotonic()
    while len(seconds) <= most and (
        len(seconds) < 2 or time.monotonic() - begin < limit
    ):
        start = time.perf_counter()
        state, *_ = jax.block_until_ready(take(state, rows))
        seconds.append(time.perf_counter() - start)
    return step, seconds[1:]  # the first one also touches new memory
