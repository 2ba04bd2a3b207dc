"""The best evaluation of a run so far."""

import dataclasses
import math


@dataclasses.dataclass
class BestScore:
    """The highest score of the evaluations so far; of equal ones the last, as kept."""

    score: float = -math.inf
    step: int = -1
    """The step of the best evaluation; -1: there was none with a finite score."""
    num_without_gain: int = 0
    """Evaluations since the score last rose."""

    def add(self, step: int, score: float) -> None:
        """Take the score of an evaluation; NaN is below all others."""
        self.num_without_gain = 0 if score > self.score else self.num_without_gain + 1
        if score >= self.score:
            self.score, self.step = score, step

    def note(self, step: int) -> str:
        """Return what to show beside the scores of an evaluation at `step`."""
        if self.step < 0:
            return ""
        return "best so far" if self.step == step else f"best: step {self.step}"
