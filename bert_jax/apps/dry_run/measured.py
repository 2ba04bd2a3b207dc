"""The lines on the memory and the time of a run, by some steps that are taken here."""

import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from bert_jax.config import RunConfig
from bert_jax.data.pipeline import Batch
from bert_jax.distributed.sharding import to_global_arrays
from bert_jax.runs.estimate import (
    Estimate,
    format_size,
    lower_step,
    memory_line,
    program_lines,
)
from bert_jax.training.run import Run
from bert_jax.training.start import place_fixed_params
from bert_jax.training.step import with_fixed_params

_ALL = float("inf")
_SECONDS, _MAX_STEPS = 3.0, 20
"""Steps are taken until so many seconds have passed, but no more than so many steps."""
_SAMPLED_STEPS = 20
"""Steps whose batches are read for the average work of a step."""


def free_memory(device: jax.Device, num_devices: int) -> float:
    """Return the bytes that a program may take on each device; infinity: not known.

    CPU devices share the bytes that the machine, or its container, has left.
    """
    if limit := (device.memory_stats() or {}).get("bytes_limit"):
        return float(limit)
    limits = []
    for path, pattern, unit in (
        ("/proc/meminfo", r"MemAvailable: +(\d+) kB", 1024),
        ("/sys/fs/cgroup/memory.max", r"(\d+)", 1),
    ):
        text = Path(path).read_text() if Path(path).exists() else ""
        if match := re.search(pattern, text):
            limits.append(float(match[1]) * unit)
    return min(limits, default=_ALL) / num_devices


def measured_lines(
    run: Run[RunConfig],
    batch: Batch,
    num_steps: int,
    verbose: bool = False,
    free: float | None = None,
) -> Iterator[str]:
    """Yield lines on memory, seconds and hours of a run of `num_steps` on its devices.

    Args:
        batch: the largest of the run.
        free: bytes that each device has for the run; None: what it has now.
    """
    mesh, device = run.mesh, run.mesh.devices.flat[0]
    free = free_memory(device, mesh.size) if free is None else free
    step, seconds = measure(run, batch, free)
    line = memory_line(step) + (
        f" of {format_size(free)} that are free" if free < _ALL else ""
    )
    if not seconds:
        yield f"{line}: it does not fit; raise --microbatches, or lower --batch-size"
        return
    yield line
    one, share = statistics.median(seconds), average_work(run, batch)
    kind = "CPU" if device.platform == "cpu" else device.device_kind
    yield (
        f"time: {one:.3g} s a step{' of the longest rows' if share < 1 else ''}, the "
        f"median of {len(seconds)} on {mesh.size} {kind} "
        f"device{'s' if mesh.size > 1 else ''}; compiled in {step.seconds:.0f} s"
    )
    total = duration(one * share * num_steps)
    yield f"in all: {num_steps:,} steps take {total}, besides evaluations"
    if verbose:
        yield from program_lines(step, mesh.size)


def measure(
    run: Run[RunConfig], batch: Batch, free: float
) -> tuple[Estimate, list[float]]:
    """Return the compiler's figures of the training step, and the seconds of some.

    The parameters are random, and are dropped. No step is taken if it needs more than
    `free` bytes of each device.
    """
    program, step = lower_step(run, batch).compile({})
    if not step.fits(free):
        return step, []
    state, rows = run.draw_state(), to_global_arrays(batch, run.mesh)
    take = with_fixed_params(program, place_fixed_params(run.task, run.mesh))
    seconds: list[float] = []
    begin = time.monotonic()
    while len(seconds) <= _MAX_STEPS and (
        len(seconds) < 2 or time.monotonic() - begin < _SECONDS
    ):
        start = time.perf_counter()
        state, *_ = jax.block_until_ready(take(state, rows))
        seconds.append(time.perf_counter() - start)
    return step, seconds[1:]  # the first one also touches new memory


def average_work(run: Run[RunConfig], batch: Batch) -> float:
    """Return the model FLOPs of the run's average step, as a fraction of a batch's."""
    task, config = run.task, run.config
    most = task.flops(batch)
    if task.one_shape or not most:
        return 1.0
    numbers = np.linspace(0, config.num_steps - 1, _SAMPLED_STEPS).astype(int)
    work = [task.flops(task.batch(step)) for step in np.unique(numbers).tolist()]
    return statistics.fmean(work) / most


def duration(seconds: float) -> str:
    """Return a time in hours or, if it is shorter, in minutes or seconds."""
    for unit, name in ((3600, "hours"), (60, "minutes")):
        if seconds >= unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds:.0f} seconds"
