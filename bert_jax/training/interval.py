"""What a line of the training metrics covers: the steps since the line before."""

import dataclasses
import math
import time
from collections.abc import Mapping

import jax

from bert_jax.distributed.peaks import peak_flops_per_second
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.task import NO_WEIGHTS, Sums

_MOST_PENDING = 256
"""Steps whose sums stay on the device, at most."""


def means_of_totals(
    totals: Mapping[str, tuple[float, float]],
    objective: tuple[str, ...],
    weights: Mapping[str, float] = NO_WEIGHTS,
) -> dict[str, float]:
    """Return each total divided by its count, and `loss`: the objective's sum of means.

    A count of 0 has a mean of 0. Without a total of the objective, `loss` is NaN. The
    weights are the factors of means in `loss`, other than 1.
    """
    means = {name: total / (count or 1.0) for name, (total, count) in totals.items()}
    loss = sum(means.get(name, math.nan) * weights.get(name, 1.0) for name in objective)
    return {"loss": loss} | means


@dataclasses.dataclass
class Interval:
    """Adds up the losses and accuracies of steps; their sums stay on the device.

    Fetching them at each step would make the host wait for it. They are added in
    float64 and in the order of the steps, so that a resumed run has the same means.
    """

    objective: tuple[str, ...]
    """The names whose means add up to `loss`."""
    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """The factors of means in `loss`, other than 1."""
    _pending: list[Sums] = dataclasses.field(default_factory=list)
    _totals: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    @classmethod
    def resumed(
        cls,
        objective: tuple[str, ...],
        sums: object,
        weights: Mapping[str, float] = NO_WEIGHTS,
    ) -> "Interval":
        """Return one that goes on from the `sums` of a checkpoint.

        What are no sums, as in a checkpoint of an older version, counts as none.
        """
        totals = {}
        for name, pair in sums.items() if isinstance(sums, dict) else ():
            match pair:
                case [float(total), float(count)]:
                    totals[name] = total, count
        return cls(objective, weights, _totals=totals)

    def add(self, sums: Sums) -> None:
        """Add a step's totals and counts, by name."""
        self._pending.append(sums)
        if len(self._pending) >= _MOST_PENDING:
            self._fetch()

    def _fetch(self) -> None:
        """Add what is pending, except steps whose loss is not finite."""
        for sums in jax.device_get(self._pending):
            if not all(math.isfinite(sums[name][0]) for name in self.objective):
                continue
            for name, (total, count) in sums.items():
                before = self._totals.get(name, (0.0, 0.0))
                self._totals[name] = before[0] + float(total), before[1] + float(count)
        self._pending.clear()

    def means(self) -> dict[str, float]:
        """Return `means_of_totals` of the totals so far, and start a new interval."""
        self._fetch()
        totals, self._totals = self._totals, {}
        return means_of_totals(totals, self.objective, self.weights)

    def sums(self) -> JsonObject:
        """Return the totals and counts so far, for a checkpoint."""
        self._fetch()
        return {name: list(sums) for name, sums in self._totals.items()}


@dataclasses.dataclass
class Clock:
    """Measures the rates between two lines."""

    num_devices: int
    num_shards: int
    """The number of host shards of a batch; only this host's tokens are counted."""
    start: float = 0.0
    tokens: int = 0
    flops: float = 0.0
    wait_seconds: float = 0.0

    def restart(self) -> None:
        """Start a new interval."""
        self.start = time.monotonic()
        self.tokens, self.flops, self.wait_seconds = 0, 0.0, 0.0

    def rates(self) -> dict[str, float]:
        """Return the rates of the interval.

        The tokens per second of all hosts, the fraction of time spent waiting for data,
        and the MFU if the device's peak is known.
        """
        if not self.tokens:
            return {}
        seconds = time.monotonic() - self.start
        rates = {
            "tokens_per_second": self.tokens * self.num_shards / seconds,
            "data_wait": self.wait_seconds / seconds,
        }
        peak = peak_flops_per_second(jax.devices()[0].device_kind)
        if peak is not None and self.flops:
            rates["mfu"] = self.flops / seconds / (peak * self.num_devices)
        return rates
