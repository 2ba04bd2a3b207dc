"""What was measured, as numbers by name, and as a table that a person reads."""

import resource
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Figures = dict[str, Any]
Turn = Callable[[int], float]
"""Runs one step that does not count and then so many → seconds of one of these."""


def peak_memory_mib(whose: int = resource.RUSAGE_SELF) -> float:
    """The largest resident set so far of this process or a child of it, in MiB."""
    peak = resource.getrusage(whose).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def alternate(
    turns: Mapping[Any, Turn], repeats: int, steps: int
) -> dict[Any, list[float]]:
    """The seconds of each turn, all taking theirs before any has another.

    A machine that slows down or is disturbed for a while then does so for all.
    """
    seconds: dict[Any, list[float]] = {name: [] for name in turns}
    for _ in range(repeats):
        for name, turn in turns.items():
            seconds[name].append(turn(steps))
    return seconds


def rates(
    seconds: Sequence[float], sequences: int, tokens: int, flops: float
) -> Figures:
    """Rates by the median of the seconds of a step of so much work."""
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
    """How many times as many tokens a second ours are, alternation by alternation."""
    each = [their / our for our, their in zip(ours, theirs, strict=True)]
    return {
        "ratio": statistics.median(each),
        "ratio_lowest": min(each),
        "ratio_highest": max(each),
        "ratios": each,
    }


def show(value: Any) -> str:
    """A figure as a person reads it."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, list):
        return " ".join(map(show, value))
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)
    return f"{value:,}"


def table(columns: Mapping[str, Figures]) -> Iterator[str]:
    """Lines: a figure each, with a column for whoever has it."""
    names = dict.fromkeys(name for column in columns.values() for name in column)
    cells = [["", *columns]] if len(columns) > 1 else []
    for name in names:
        found = [column.get(name) for column in columns.values()]
        cells.append([name, *("-" if v is None else show(v) for v in found)])
    if len(columns) == 1:
        yield from (f"{name:34} {value}" for name, value in cells)
        return
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *rest in cells:
        row = [f"{cell:>{w}}" for cell, w in zip(rest, widths[1:], strict=True)]
        yield "  ".join([f"{first:{widths[0]}}", *row])
