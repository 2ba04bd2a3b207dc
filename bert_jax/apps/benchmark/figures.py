"""Measured figures by name, and the table in which they are printed."""

import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_jax.terminal.columns import aligned

Figures = dict[str, Any]
Timer = Callable[[int], float]
"""Runs one step untimed, then the given number; returns the seconds of one of these."""


def peak_memory_mib(whose: int = resource.RUSAGE_SELF) -> float:
    """Return the peak resident set size of this process or of its children, in MiB."""
    peak = resource.getrusage(whose).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def seconds_per_step(
    step: Callable[[], Any], wait: Callable[[Any], object], steps: int
) -> float:
    """Run one step untimed, then `steps`; return the seconds of one of these.

    `wait` waits for the end of a step, given its result.
    """
    wait(step())
    start = time.perf_counter()
    for _ in range(steps):
        result = step()
    wait(result)
    return (time.perf_counter() - start) / steps


def alternate(
    timers: Mapping[Any, Timer], repeats: int, steps: int
) -> dict[Any, list[float]]:
    """Run the timers in turn, `repeats` times; return the seconds of each.

    If the machine is slower for a while, this affects all of them.
    """
    seconds: dict[Any, list[float]] = {name: [] for name in timers}
    for _ in range(repeats):
        for name, timer in timers.items():
            seconds[name].append(timer(steps))
    return seconds


def rates(
    seconds: Sequence[float], sequences: int, tokens: int, flops: float
) -> Figures:
    """Return the rates of steps of this much work, by the median of `seconds`."""
    median = statistics.median(seconds)
    return {
        "step_seconds": median,
        "step_seconds_fastest": min(seconds),
        "step_seconds_slowest": max(seconds),
        "tokens_per_second": tokens / median,
        "sequences_per_second": sequences / median,
        "model_flops_per_second": flops / median,
    }


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Figures:
    """Return our tokens per second as multiples of theirs, for each alternation."""
    quotients = [their / our for our, their in zip(ours, theirs, strict=True)]
    return {
        "ratio": statistics.median(quotients),
        "ratio_lowest": min(quotients),
        "ratio_highest": max(quotients),
        "ratios": quotients,
    }


def show(value: object) -> str:
    """Format a figure for the table."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if value is None:
        return "-"
    return f"{value:,}" if type(value) is int else str(value)


def table(columns: Mapping[str, Figures]) -> list[str]:
    """Return a line for each figure; a column without it shows a dash."""
    names = dict.fromkeys(name for column in columns.values() for name in column)
    cells = [["", *columns]]
    for name in names:
        cells.append([name, *(show(figures.get(name)) for figures in columns.values())])
    return aligned(cells)
