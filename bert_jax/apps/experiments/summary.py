"""From the results of cells to the numbers of the table."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bert_jax.apps.experiments.bootstrap import (
    Difference,
    ScoreKind,
    paired_difference,
    seed_scores,
)
from bert_jax.apps.experiments.cells import Cell, Point
from bert_jax.apps.experiments.design import Experiment, RowSpec
from bert_jax.apps.experiments.results import Result, read_result

ResultKey = tuple[str, str, float]
"""The name of a row, a column, and a fraction of the FLOPs."""


@dataclasses.dataclass(frozen=True)
class Score:
    """The scores of a row's measure, by seed, and the difference to its base."""

    seeds: tuple[int, ...]
    values: tuple[float, ...]
    kind: ScoreKind
    num_items: int
    """Test items."""
    difference: Difference | None = None
    """Paired, of the seeds that both have; None: it is compared with no row."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds; NaN of one seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else np.nan

    @property
    def verdict(self) -> int:
        """1: better than the base, -1: worse, 0: the interval has 0."""
        if self.difference is None or not self.difference.excludes_zero:
            return 0
        is_better = self.difference.mean > 0
        return 1 if is_better == (self.kind == "ratio") else -1


@dataclasses.dataclass(frozen=True)
class Summary:
    """All that is known of an experiment."""

    experiment: Experiment
    scores: Mapping[ResultKey, Score]
    points: Mapping[str, Sequence[Point]]
    """Of each variant."""
    num_seeds: int
    """Those that the experiment has when it is complete."""
    hours: float
    """Wall time of all cells that have a result, without what a kill has cost."""
    diverged: Sequence[str]
    """The variant and seed of each cell whose loss was not finite."""

    @property
    def columns(self) -> list[str]:
        """The columns that have a score, in the order of the measures."""
        names = [m.column for row in self.experiment.rows for m in row.measures]
        present = {column for _, column, _ in self.scores}
        return [name for name in dict.fromkeys(names) if name in present]

    def rows(self) -> Iterator[tuple[RowSpec, Point]]:
        """Yield each row with each state of its variant, in the table's order."""
        for row in self.experiment.rows:
            for point in self.points[row.variant]:
                yield row, point


def summarize(experiment: Experiment, cells: Sequence[Cell]) -> Summary:
    """Read the results that are there, and compare each row with its base."""
    results: dict[ResultKey, dict[int, Result]] = {}
    by_variant: dict[str, list[Cell]] = {}
    for cell in cells:
        by_variant.setdefault(cell.variant.name, []).append(cell)
    for row in experiment.rows:
        for cell in by_variant[row.variant]:
            for fraction in cell.variant.fractions:
                for measure in row.measures:
                    path = cell.result_path(row, measure, fraction)
                    if path.exists():
                        place = (row.name, measure.column, fraction)
                        results.setdefault(place, {})[cell.seed] = read_result(path)
    bases = {row.name: experiment.base_of(row) for row in experiment.rows}
    scores = {
        (row, column, fraction): _score(
            by_seed, results.get((bases[row], column, fraction), {})
        )
        for (row, column, fraction), by_seed in results.items()
    }
    points = {name: own[0].points() for name, own in by_variant.items()}
    seconds = sum(r.seconds for by_seed in results.values() for r in by_seed.values())
    num_seeds = len({cell.seed for cell in cells})
    diverged = [
        f"{cell.variant.name}, seed {cell.seed}"
        for cell in cells
        if cell.diverged.exists()
    ]
    return Summary(experiment, scores, points, num_seeds, seconds / 3600, diverged)


def _score(by_seed: Mapping[int, Result], base: Mapping[int, Result]) -> Score:
    """Return the scores of one place; `base` has the same place of the base row."""
    seeds = sorted(by_seed)
    kind = by_seed[seeds[0]].kind
    values = seed_scores(np.stack([by_seed[s].items for s in seeds]), kind)
    shared = [seed for seed in seeds if seed in base]
    difference = None
    if shared:
        one, other = (
            np.stack([side[seed].items for seed in shared]) for side in (by_seed, base)
        )
        difference = paired_difference(one, other, kind)
    num_items = len(by_seed[seeds[0]].items)
    return Score(tuple(seeds), tuple(values.tolist()), kind, num_items, difference)
