"""The scores of one or several fine-tuning runs: as JSON values, and as a table."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.storage.files import JsonObject
from bert_jax.tasks.baselines import no_better
from bert_jax.tasks.predictions import main_score, score_format, without_repeats
from bert_jax.terminal.columns import aligned, shortened

_PARTS = {"before_": "before", "": "validation", "test_": "test"}
"""The headings of scores, by the beginning of their names."""
_NAME_WIDTH = 44
_EXACT = "_threshold"
"""Ends the names of scores that are the value of one example: rounded, it is another's.
"""


def best_run(runs: Sequence[JsonObject]) -> JsonObject:
    """Return the run with the highest first score; NaN is below all others."""
    return max(runs, key=lambda run: _sortable(main_score(run["scores"])))


def summarise(runs: Sequence[JsonObject]) -> list[JsonObject]:
    """Return for each setting its seeds, and each score's values over them.

    A score has a `mean` and a `deviation`, the standard one, null for one seed; with a
    test file `test_mean` and `test_deviation`, too.
    """
    return [
        {
            "setting": setting,
            "seeds": [run["seed"] for run in own],
            "scores": _over_seeds([run["scores"] for run in own]),
        }
        for setting in dict.fromkeys(run["setting"] for run in runs)
        if (own := [run for run in runs if run["setting"] == setting])
    ]


def _over_seeds(scores: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    summary: dict[str, dict[str, float]] = {}
    for key in without_repeats(scores[0]):
        prefix = next((p for p in ("before_", "test_") if key.startswith(p)), "")
        values = np.array([own[key] for own in scores], np.float64)
        mean, deviation = float(values.mean()), math.nan
        if len(values) > 1:
            deviation = float(f"{values.std(ddof=1):.6g}")
        if len(values) > 1 or not key.endswith(_EXACT):
            mean = float(f"{mean:.6g}")
        summary.setdefault(key.removeprefix(prefix), {}).update(
            {f"{prefix}mean": mean, f"{prefix}deviation": deviation}
        )
    return summary


def runs_json(runs: Sequence[JsonObject]) -> JsonObject:
    """Return the best run's name and the summary of each setting, to be printed."""
    return {"best": best_run(runs)["name"], "settings": summarise(runs)}


def runs_lines(runs: Sequence[JsonObject]) -> Iterator[str]:
    """Yield the table of several runs: a row a score, mean ± deviation over the seeds.

    Of several settings, a row each for the first score, from the best on; then all
    scores of the best run's setting.
    """
    settings, best = summarise(runs), best_run(runs)
    name = next(k for k in settings[0]["scores"] if k != "loss")
    if len(settings) > 1:
        settings.sort(key=lambda own: -_sortable(own["scores"][name]["mean"]))
        yield f"{name} of each setting, mean ± standard deviation over its seeds"
        rows = [(own["setting"], own["scores"][name]) for own in settings]
        yield from _table(rows, "setting", name)
    own = next(s for s in settings if s["setting"] == best["setting"])
    seeds = ", ".join(map(str, own["seeds"]))
    several = len(own["seeds"]) > 1
    over = f", mean ± standard deviation over seeds {seeds}" if several else ""
    yield own["setting"]
    yield f"Best checkpoint of each run{over}"
    yield from _table([*own["scores"].items()])
    chosen = [run["scores"] for run in runs if run["setting"] == own["setting"]]
    yield from no_better({k: np.mean([s[k] for s in chosen]) for k in chosen[0]})
    yield f"{best['name']} is the best run, and is kept."


def score_lines(scores: dict[str, float]) -> list[str]:
    """Return the table of the scores of one run: a row a score."""
    return [*_table([*_over_seeds([scores]).items()]), *no_better(scores)]


def _sortable(score: float) -> float:
    return -math.inf if math.isnan(score) else score


def _table(
    rows: Sequence[tuple[str, dict[str, float]]], heading: str = "score", name: str = ""
) -> list[str]:
    """Return lines: titles, and a column for each of `_PARTS` that a score has.

    A row has a title, and the values of the score `name`; "": of the title's.
    """
    parts = [p for p in _PARTS if any(f"{p}mean" in values for _, values in rows)]
    cells = [[heading, *(_PARTS[part] for part in parts)]]
    for title, values in rows:
        own = (_cell(name or title, values, part) for part in parts)
        cells.append([shortened(title, _NAME_WIDTH), *own])
    return aligned(cells)


def _cell(name: str, values: dict[str, float], part: str) -> str:
    if f"{part}mean" not in values:
        return ""
    kind = score_format(name)
    mean, deviation = values[f"{part}mean"], values[f"{part}deviation"]
    if math.isnan(deviation):
        return f"{mean:{kind}}"
    return f"{mean:{kind or '.4f'}} ± {deviation:{kind or '.4f'}}"
