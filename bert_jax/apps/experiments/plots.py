"""Plots of an experiment: every seed as a point, and intervals of the differences."""

import importlib.util
import io
import math
from pathlib import Path
from typing import Any

from bert_jax.apps.experiments.design import Budget
from bert_jax.apps.experiments.summary import Score, Summary
from bert_jax.storage.files import atomic_write

FORMATS = ("png", "svg")
_COLORS = ("#1450b4", "#b4500f", "#2a7d3f", "#8a2be2", "#a0522d", "#555555")


def require_matplotlib() -> None:
    """Raise ModuleNotFoundError, with the remedy, if plots cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ModuleNotFoundError(
            "Plots need matplotlib, which the extra experiments has"
        )


def write_plots(summary: Summary, budget: Budget, directory: Path) -> list[Path]:
    """Write `plot.png` and `plot.svg`; return their paths.

    Raise ModuleNotFoundError if matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    # Text stays text, and two calls write the same file.
    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "bert_jax", "font.size": 9}
    )
    is_curve = any(len(points) > 1 for points in summary.points.values())
    figure = _curves(summary, budget) if is_curve else _strips(summary)
    paths = [directory / f"plot.{suffix}" for suffix in FORMATS]
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        buffer = io.BytesIO()
        figure.savefig(
            buffer,
            format=path.suffix[1:],
            dpi=150,
            bbox_inches="tight",
            metadata=metadata,
        )
        atomic_write(path, buffer.getvalue())
    return paths


def _strips(summary: Summary) -> Any:
    """One panel a column: the scores of all seeds of each row, with their mean.

    A bar is the interval of the difference, drawn from the mean of the base.
    """
    from matplotlib.figure import Figure

    columns, rows = summary.columns, summary.experiment.rows
    figure = Figure(figsize=(3.2 * len(columns) + 2.4, 0.5 * len(rows) + 1.6))
    axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axis, column in zip(axes, columns, strict=True):
        for height, row in enumerate(rows):
            score = summary.scores.get((row.name, column, 1.0))
            base = summary.scores.get((summary.experiment.base_of(row), column, 1.0))
            if score is not None:
                _draw_row(axis, height, score, base)
        kinds = {s.kind for (_, c, _), s in summary.scores.items() if c == column}
        unit = "%" if kinds == {"ratio"} else "lower is better"
        axis.set_title(f"{column} ({unit})", fontsize=9)
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(rows)), [row.name for row in rows])
    axes[0].invert_yaxis()
    figure.suptitle(
        f"{summary.experiment.title}: a point is a seed, a line their mean, "
        "a bar the interval of the difference"
    )
    figure.tight_layout()
    return figure


def _draw_row(axis: Any, height: int, score: Score, base: Score | None) -> None:
    """Draw the seeds of a row and, below them, the interval beside the base's mean."""
    scale = 100.0 if score.kind == "ratio" else 1.0
    values = [scale * value for value in score.values]
    axis.plot(values, [height] * len(values), "o", color=_COLORS[0], alpha=0.35, ms=5)
    axis.plot([scale * score.mean], [height], "|", color="black", ms=14)
    difference = score.difference
    if base is None or difference is None or not math.isfinite(difference.low):
        return
    ends = [scale * (base.mean + end) for end in (difference.low, difference.high)]
    color = _COLORS[1] if difference.excludes_zero else "grey"
    axis.plot(ends, [height + 0.28] * 2, "-", color=color, lw=2.5)


def _curves(summary: Summary, budget: Budget) -> Any:
    """A row of panels a column: the scores by steps, by predictions and by FLOPs."""
    from matplotlib.figure import Figure

    axes_names = ("steps", "predicted tokens", "FLOPs")
    columns = summary.columns
    figure = Figure(figsize=(11, 3.2 * len(columns) + 0.6))
    panels = figure.subplots(len(columns), 3, sharey="row", squeeze=False)
    for panel_row, column in zip(panels, columns, strict=True):
        for color, row in zip(_COLORS, summary.experiment.rows, strict=False):
            points = [
                (point, score)
                for point in summary.points[row.variant]
                if (score := summary.scores.get((row.name, column, point.fraction)))
            ]
            xs: tuple[list[float], ...] = (
                [float(point.steps) for point, _ in points],
                [point.predicted for point, _ in points],
                [point.fraction * budget.flops for point, _ in points],
            )
            for axis, x in zip(panel_row, xs, strict=True):
                _draw_curve(axis, x, [score for _, score in points], color, row.name)
        for axis, name in zip(panel_row, axes_names, strict=True):
            axis.set_xscale("log")
            axis.set_xlabel(name)
            axis.grid(alpha=0.3)
        panel_row[0].set_ylabel(column)
    panels[0][0].legend(fontsize=7)
    figure.suptitle(f"{summary.experiment.title}: a point is a seed")
    figure.tight_layout()
    return figure


def _draw_curve(
    axis: Any, x: list[float], scores: list[Score], color: str, name: str
) -> None:
    """Draw the means as a line, and each seed as a point."""
    scale = 100.0 if scores and scores[0].kind == "ratio" else 1.0
    axis.plot(x, [scale * s.mean for s in scores], "-", color=color, label=name)
    for place, score in zip(x, scores, strict=True):
        values = [scale * value for value in score.values]
        axis.plot([place] * len(values), values, ".", color=color, alpha=0.35)
