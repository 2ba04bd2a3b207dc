"""The tables of an experiment: Markdown to read, CSV to compute with."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_jax.apps.experiments.bootstrap import LEVEL
from bert_jax.apps.experiments.design import Budget, RowSpec
from bert_jax.apps.experiments.summary import Score, Summary
from bert_jax.config import BertConfig
from bert_jax.model.flops import pretraining_flops

ENOUGH_ITEMS = 1500
"""Test items below which a table says that they are few."""
_STATE = ("row", "fraction", "steps", "flops", "predicted_tokens", "measure")
_CLEAR_IN_PAPER = 0.5
"""Differences of the paper below this many points are not looked for."""


def seeds_table(summary: Summary, budget: Budget) -> str:
    """Return a line for every score: row, state, measure, seed, score."""
    lines = [
        [*state, seed, value]
        for state, score in _states(summary, budget)
        for seed, value in zip(score.seeds, score.values, strict=True)
    ]
    return _csv([*_STATE, "seed", "score"], lines)


def results_table(summary: Summary, budget: Budget) -> str:
    """Return a line for each row and measure, beside the paper's figures of the row."""
    names = _paper_columns(summary)
    figures = {row.name: dict(row.paper) for row in summary.experiment.rows}
    lines = []
    for state, score in _states(summary, budget):
        d = score.difference
        paper = [figures[str(state[0])].get(name, "") for name in names]
        numbers = [len(score.seeds), score.num_items, score.mean, score.deviation]
        lines.append([*state, *numbers, *((d.mean, d.low, d.high) if d else [""] * 3)])
        lines[-1] += paper
    fields = ["seeds", "items", "mean", "deviation", "difference", "low", "high"]
    return _csv([*_STATE, *fields, *(f"paper {name}" for name in names)], lines)


def _states(
    summary: Summary, budget: Budget
) -> Iterator[tuple[Sequence[object], Score]]:
    """Yield the columns `_STATE` and the score of each row, state and measure."""
    for row, point in summary.rows():
        flops = f"{point.fraction * budget.flops:.6g}"
        state = (row.name, point.fraction, point.steps, flops, round(point.predicted))
        for column in summary.columns:
            score = summary.scores.get((row.name, column, point.fraction))
            if score:
                yield (*state, column), score


def _csv(fields: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(fields)
    table.writerows(lines)
    return buffer.getvalue()


def markdown(summary: Summary, budget: Budget, protocol: str) -> str:
    """Return the results as a page: what they show, the table, and how to read it."""
    experiment = summary.experiment
    parts = [
        f"# {experiment.title}",
        f"{experiment.source}. Budget {budget.name}, protocol `{protocol}`.",
        " ".join(conclusions(summary, budget)),
        "\n".join(_table(summary)),
        "\n".join(_legend(summary)),
    ]
    return "\n\n".join(parts) + "\n"


def _paper_columns(summary: Summary) -> list[str]:
    rows = summary.experiment.rows
    return list(dict.fromkeys(name for row in rows for name, _ in row.paper))


def _table(summary: Summary) -> Iterator[str]:
    paper, columns = _paper_columns(summary), summary.columns
    has_fractions = any(len(points) > 1 for points in summary.points.values())
    headings = ["row", *(["FLOPs"] if has_fractions else []), "steps", *columns]
    headings += [f"paper: {name}" for name in paper]
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row, point in summary.rows():
        cells = [row.name.replace("|", "\\|")]
        if has_fractions:
            cells.append(f"{point.fraction:.2%}")
        cells.append(f"{point.steps:,}")
        for column in columns:
            score = summary.scores.get((row.name, column, point.fraction))
            cells.append(_cell(score, summary.num_seeds) if score else "")
        figures = dict(row.paper)
        cells += [f"{figures[name]}" if name in figures else "" for name in paper]
        yield f"| {' | '.join(cells)} |"


def _cell(score: Score, num_seeds: int) -> str:
    """Return mean ± deviation, the difference with its interval, and missing seeds."""
    scale = 100 if score.kind == "ratio" else 1
    text = f"{scale * score.mean:.1f}"
    if len(score.values) > 1:
        text += f" ± {scale * score.deviation:.1f}"
    d = score.difference
    if d is not None:
        text += f"; {scale * d.mean:+.1f}"
        if np.isfinite(d.low):
            text += f" [{scale * d.low:+.1f}, {scale * d.high:+.1f}]"
        text = f"**{text}**" if d.excludes_zero else text
    if len(score.values) < num_seeds:
        text += f" (n = {len(score.values)})"
    return text


def _legend(summary: Summary) -> Iterator[str]:
    rows = summary.experiment.rows
    has_bases = any(row.base for row in rows)
    base = "the row that it belongs to" if has_bases else "the first row"
    yield (
        f"Mean ± standard deviation over n = {summary.num_seeds} seeds; then the "
        f"paired difference to {base}, with its {100 * LEVEL:g} % interval over seeds "
        "and test items (Multi-Bootstrap, Sellam et al. 2021; widened for few seeds). "
        "Bold: the interval excludes 0. Accuracy and F1 in per cent; a lower "
        "perplexity is better. All rows have the same FLOPs, not the same steps as "
        "in the paper."
    )
    if num := sum(s.difference is not None for s in summary.scores.values()):
        yield (
            f"Of {num} differences, about {num * (1 - LEVEL):.1f} would be bold by "
            "chance if there were none."
        )
    items = {
        column: score.num_items for (_, column, _), score in summary.scores.items()
    }
    listed = "; ".join(f"{column}: {number:,}" for column, number in items.items())
    few = " Few items make wide intervals." * (min(items.values()) < ENOUGH_ITEMS)
    yield f"Test items: {listed}.{few}"
    if summary.diverged:
        yield f"Diverged, and left out: {'; '.join(summary.diverged)}."
    if summary.experiment.paper:
        yield f"Figures of the paper: {summary.experiment.paper}."
    yield f"The runs took at least {summary.hours:.2f} hours together."


def conclusions(summary: Summary, budget: Budget) -> Iterator[str]:
    """Yield sentences: what was spent, what differs, and what the paper found."""
    yield (
        f"Each pretraining spends {budget.flops:.2g} model FLOPs, "
        f"{_times_the_paper(budget.flops)}; what follows holds for this budget, this "
        "text and these tasks."
    )
    ends = {key: score for key, score in summary.scores.items() if key[2] == 1.0}
    final = {key: score for key, score in ends.items() if score.difference}
    clear = {key: score for key, score in final.items() if score.verdict}
    if not final:
        return
    yield (
        f"At its end, {len(clear)} of {len(final)} differences have an interval that "
        "excludes 0."
    )
    for word, sign in (("better", 1), ("worse", -1)):
        names = [
            f"{row} ({column})"
            for (row, column, _), score in clear.items()
            if score.verdict == sign
        ]
        if names:
            yield f"Clearly {word}: {'; '.join(names)}."
    widths = [
        (s.difference.high - s.difference.low) / 2
        for s in final.values()
        if s.difference is not None and s.kind == "ratio" and len(s.seeds) > 1
    ]
    if widths:
        yield (
            f"A difference in accuracy or F1 below about {100 * np.median(widths):.1f} "
            "points (the median half-width of an interval) cannot be seen here."
        )
    yield from _beside_the_paper(summary)


def _times_the_paper(flops: float) -> str:
    """Compare FLOPs with those of BERT base (Devlin et al. 2018, A.2)."""
    shape = BertConfig.base()
    paper = 9e5 * pretraining_flops(shape, 256, 128, 20)
    paper += 1e5 * pretraining_flops(shape, 256, 512, 77)
    if flops >= 0.1 * paper:
        return f"{flops / paper:.1f} times the {paper:.1e} of BERT base in the paper"
    ratio = float(f"{paper / flops:.2g}")
    return f"1/{ratio:,.0f} of the {paper:.1e} of BERT base in the paper"


def _beside_the_paper(summary: Summary) -> Iterator[str]:
    """Yield which clear differences of the paper are here too, opposite, or unseen."""
    groups: dict[int, list[str]] = {1: [], -1: [], 0: []}
    rows = {row.name: row for row in summary.experiment.rows}
    for row in rows.values():
        base = rows.get(summary.experiment.base_of(row))
        for ending in ("fine-tuned", "features"):
            difference = _paper_difference(row, base, ending) if base else 0.0
            for column in summary.columns:
                score = summary.scores.get((row.name, column, 1.0))
                if score is None or not difference or not column.endswith(ending):
                    continue
                sign = 1 if difference > 0 else -1
                text = f"{row.name} ({column}; {difference:+.1f} in the paper)"
                groups[score.verdict * sign].append(text)
    for agreement, beginning in (
        (1, "As in the paper"),
        (-1, "Opposite to the paper"),
        (0, "Seen in the paper, and not at this budget"),
    ):
        if groups[agreement]:
            yield f"{beginning}: {'; '.join(groups[agreement])}."


def _paper_difference(row: RowSpec, base: RowSpec, ending: str) -> float:
    """Return the largest difference of the paper's figures of one kind; 0: none."""
    figures = dict(base.paper)
    differences = [
        figure - figures[name]
        for name, figure in row.paper
        if name in figures
        and name != "perplexity"
        and name.endswith("features") == (ending == "features")
    ]
    largest = max(differences, key=abs, default=0.0)
    return largest if abs(largest) >= _CLEAR_IN_PAPER else 0.0
