"""Scores over test items and seeds, and the Multi-Bootstrap intervals of differences.

Every score here is a function of two sums over the test items, a numerator and a
denominator, so that one resampling serves accuracy, F1 and perplexity.
"""

import dataclasses
import math
from typing import Literal

import numpy as np
from jaxtyping import Float64

ScoreKind = Literal["ratio", "perplexity"]
"""ratio: the quotient of the two sums (accuracy, F1); perplexity: its exponential."""
Items = Float64[np.ndarray, "N 2"]
"""Numerator and denominator of each test item, for one seed."""
SeedItems = Float64[np.ndarray, "S N 2"]

NUM_SAMPLES, LEVEL = 1000, 0.95
_CHUNK = 50  # resamplings at once, so that large test sets fit in memory


@dataclasses.dataclass(frozen=True)
class Difference:
    """A mean difference over seeds, and the ends of its interval.

    They are infinite if there is one seed.
    """

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of 0."""
        return self.low > 0 or self.high < 0


def scores_of(
    sums: Float64[np.ndarray, "*shape 2"], kind: ScoreKind
) -> Float64[np.ndarray, "*shape"]:
    """Return the scores of pairs of sums; 0 where the denominator is 0."""
    numerators, denominators = sums[..., 0], sums[..., 1]
    ratios = numerators / np.where(denominators == 0, 1.0, denominators)
    return np.exp(ratios) if kind == "perplexity" else ratios


def seed_scores(items: SeedItems, kind: ScoreKind) -> Float64[np.ndarray, " S"]:
    """Return the score of each seed over all items."""
    return scores_of(items.sum(axis=1), kind)


def paired_difference(
    items: SeedItems, base: SeedItems, kind: ScoreKind, num_samples: int = NUM_SAMPLES
) -> Difference:
    """Return the difference `items` - `base` of the scores, with its interval.

    The Multi-Bootstrap (Sellam et al. 2021, §4, paired): each resampling draws seeds
    and, independently, test items, with replacement and the same for both sides. The
    interval holds the middle `LEVEL` of the resampled differences. Of few seeds it is
    too narrow: it is widened by t/z · √(S/(S - 1)), as that of the mean of S normal
    numbers. Of one seed there is none.
    """
    num_seeds, num_items, _ = items.shape
    generator = np.random.default_rng(2021)
    sampled = []
    for start in range(0, num_samples, _CHUNK):
        size = min(_CHUNK, num_samples - start)
        seeds = generator.integers(num_seeds, size=(size, num_seeds))
        weights = generator.multinomial(
            num_items, np.full(num_items, 1 / num_items), size=size
        ).astype(np.float64)
        one, other = (
            scores_of(np.einsum("bn,snk->bsk", weights, side, optimize=True), kind)
            for side in (items, base)
        )
        chosen = np.take_along_axis(one - other, seeds, axis=1)
        sampled.append(chosen.mean(axis=1))
    mean = float((seed_scores(items, kind) - seed_scores(base, kind)).mean())
    if num_seeds == 1:
        return Difference(mean, -math.inf, math.inf)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(np.concatenate(sampled), [tail, 1 - tail])
    factor = widening(num_seeds)
    low, high = (mean + factor * (float(end) - mean) for end in (low, high))
    return Difference(mean, low, high)


def widening(num_seeds: int) -> float:
    """Return the factor by which the interval of a few seeds is widened."""
    from scipy.stats import norm, t

    tail = (1 + LEVEL) / 2
    quotient = t.ppf(tail, num_seeds - 1) / norm.ppf(tail)
    return float(quotient * math.sqrt(num_seeds / (num_seeds - 1)))
