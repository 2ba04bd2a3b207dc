"""The tables of an experiment: Markdown to read, CSV to compute with."""

import csv
import io
from collections.abc import Iterator

from bert_jax.config import BertConfig
from bert_jax.experiments.design import Budget
from bert_jax.experiments.summary import Score, Summary
from bert_jax.model.flops import pretraining_flops

FIELDS = ("row", "share", "steps", "flops", "predicted_tokens", "measure", "seed")


def csv_table(summary: Summary, budget: Budget) -> str:
    """Return every score as a line: row, state of the variant, measure, seed, score."""
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow([*FIELDS, "score"])
    for row, point in summary.rows():
        for column in summary.columns:
            score = summary.scores.get((row.name, column, point.share))
            for seed, value in zip(
                score.seeds if score else (), score.values if score else (), strict=True
            ):
                state = (point.share, point.steps, f"{point.share * budget.flops:.6g}")
                predicted = round(point.predicted)
                table.writerow([row.name, *state, predicted, column, seed, value])
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


def _table(summary: Summary) -> Iterator[str]:
    paper = list(
        dict.fromkeys(name for row in summary.experiment.rows for name, _ in row.paper)
    )
    columns = summary.columns
    has_shares = any(len(points) > 1 for points in summary.points.values())
    headings = ["row", *(["FLOPs"] if has_shares else []), "steps", *columns]
    headings += [f"paper: {name}" for name in paper]
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row, point in summary.rows():
        cells = [row.name.replace("|", "\\|")]
        if has_shares:
            cells.append(f"{point.share:.2%}")
        cells.append(f"{point.steps:,}")
        for column in columns:
            score = summary.scores.get((row.name, column, point.share))
            cells.append(_cell(score, summary.num_seeds) if score else "")
        figures = dict(row.paper)
        cells += [f"{figures[name]}" if name in figures else "" for name in paper]
        yield f"| {' | '.join(cells)} |"


def _cell(score: Score, num_seeds: int) -> str:
    """Return mean ± deviation, the difference with its interval, and missing seeds."""
    scale, digits = (100, 1) if score.kind == "ratio" else (1, 2)
    text = f"{scale * score.mean:.{digits}f}"
    if len(score.values) > 1:
        text += f" ± {scale * score.deviation:.{digits}f}"
    if score.difference is not None:
        d = score.difference
        low, high = scale * d.low, scale * d.high
        text += (
            f"; {scale * d.mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"
        )
        text = f"**{text}**" if d.excludes_zero else text
    if len(score.values) < num_seeds:
        text += f" (n = {len(score.values)})"
    return text


def _legend(summary: Summary) -> Iterator[str]:
    counts = {len(score.values) for score in summary.scores.values()}
    seeds = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
    yield (
        f"Mean ± standard deviation over {seeds} seeds; then the paired difference to "
        "the first row, with its 95 % interval over seeds and test items (Multi-"
        "Bootstrap, Sellam et al. 2021). Bold: the interval excludes 0. Accuracy and "
        "F1 in per cent; a lower perplexity is better."
    )
    if summary.experiment.paper:
        yield f"Figures of the paper: {summary.experiment.paper}."
    yield f"All runs together took {summary.hours:.2f} hours."


def conclusions(summary: Summary, budget: Budget) -> Iterator[str]:
    """Yield sentences: what was spent, what differs, and what the paper found."""
    shape = BertConfig.base()
    paper_flops = 9e5 * pretraining_flops(shape, 256, 128, 20)
    paper_flops += 1e5 * pretraining_flops(shape, 256, 512, 77)
    yield (
        f"Each pretraining spends {budget.flops:.2g} model FLOPs, "
        f"{_ratio(paper_flops / budget.flops)} the {paper_flops:.1e} of BERT base in "
        "the paper; what follows holds for this budget, this text and these tasks."
    )
    compared = {p: s for p, s in summary.scores.items() if s.difference is not None}
    clear = {place: score for place, score in compared.items() if score.verdict}
    base = summary.experiment.rows[0].name
    yield (
        f"Of {len(compared)} differences to “{base}”, {len(clear)} have an interval "
        "that excludes 0."
    )
    for word, sign in (("better", 1), ("worse", -1)):
        names = [
            f"{row} ({column})"
            for (row, column, share), score in clear.items()
            if score.verdict == sign and share == 1.0
        ]
        if names:
            yield f"Clearly {word}: {'; '.join(names)}."
    yield from _beside_the_paper(summary)


def _ratio(value: float) -> str:
    return (
        f"1/{value:.0f} of" if value < 1e4 else f"1/{value:.0e} of".replace("e+", "e")
    )


def _beside_the_paper(summary: Summary) -> Iterator[str]:
    """Yield where the signs of clear differences are not those of the paper."""
    base = dict(summary.experiment.rows[0].paper)
    against, open_ = [], []
    for row in summary.experiment.rows[1:]:
        for name, figure in row.paper:
            if name not in base or figure == base[name]:
                continue
            sign = 1 if figure > base[name] else -1
            is_probe = name.endswith("features")
            for column in summary.columns:
                score = summary.scores.get((row.name, column, 1.0))
                kinds = column.endswith("features"), column.endswith("fine-tuned")
                if score is None or not kinds[0 if is_probe else 1]:
                    continue
                text = f"{row.name} ({column}; paper {name} {figure - base[name]:+.1f})"
                if score.verdict == -sign:
                    against.append(text)
                elif score.verdict == 0:
                    open_.append(text)
    if against:
        yield f"These differ from the paper's in sign: {'; '.join(against)}."
    if open_:
        yield (
            "This budget does not show these differences of the paper: "
            f"{'; '.join(open_)}."
        )
