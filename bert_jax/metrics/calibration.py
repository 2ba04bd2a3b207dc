"""How far the probabilities of a model are from how often it is right."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

NUM_BINS = 15
"""The number of bins of Guo et al. 2017, §5."""


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Predictions in bins of equal width, by their probability."""

    edges: Float[np.ndarray, " M_plus_1"]
    """Bin m holds the probabilities above edge m up to edge m + 1; the first also 0."""
    counts: Int[np.ndarray, " M"]
    mean_probability: Float[np.ndarray, " M"]
    """NaN where the bin is empty."""
    fraction_true: Float[np.ndarray, " M"]
    """Of the predictions in the bin, the fraction that came true; NaN if empty."""

    @property
    def expected_error(self) -> float:
        """The expected calibration error (Naeini et al. 2015; Guo et al. 2017, eq. 3).

        The mean distance, from 0 to 1, of fraction and mean probability of the bins,
        weighted by their counts.
        """
        distance = np.abs(self.fraction_true - self.mean_probability)
        return float(np.nansum(self.counts * distance) / self.counts.sum())

    @property
    def mean_difference(self) -> float:
        """The mean probability minus the fraction true; above 0: overconfident."""
        difference = self.mean_probability - self.fraction_true
        return float(np.nansum(self.counts * difference) / self.counts.sum())


def calibration(
    probabilities: Float[np.ndarray, " N"],
    came_true: Bool[np.ndarray, " N"],
    num_bins: int = NUM_BINS,
) -> Calibration:
    """Compare probabilities with whether what they are of came true.

    For a class among several, both are of the predicted class (Guo et al. 2017, §2).
    Raise ValueError if there is no probability, or one is not from 0 to 1.
    """
    if not probabilities.size:
        raise ValueError("There are no probabilities: no calibration is defined.")
    inside = (probabilities >= 0) & (probabilities <= 1)
    if not inside.all():
        raise ValueError(
            f"probability {probabilities[~inside][0]} must be from 0 to 1; the model's "
            "parameters are damaged, or training diverged."
        )
    edges = np.linspace(0, 1, num_bins + 1)
    bins = np.digitize(probabilities, edges[1:-1], right=True)
    counts = np.bincount(bins, minlength=num_bins)
    sums = np.bincount(bins, weights=probabilities, minlength=num_bins)
    num_true = np.bincount(bins, weights=came_true, minlength=num_bins)
    filled = np.where(counts, counts, np.nan)
    return Calibration(edges, counts, sums / filled, num_true / filled)
