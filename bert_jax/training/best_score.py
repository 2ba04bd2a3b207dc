"""The best evaluation of a run so far."""

import dataclasses
import math


@dataclasses.dataclass
class BestScore:
    """The highest score of the evaluations so far; of equal ones the last, as kept."""

    score: float = -math.inf
    step: int = -1
    """The step of the best evaluation; -1: there was none with a finite score."""
    gain_step: int = -1
    """The step at which the score last rose."""
    num_without_gain: int = 0
    """Evaluations since then."""

    def add(self, step: int, score: float) -> None:
        """Take the score of an evaluation; NaN is below all others.

        The score of step 0 is of the model before training, which is no checkpoint.
        """
        if step == 0:
            return
        self.num_without_gain += 1
        if score > self.score:
            self.gain_step, self.num_without_gain = step, 0
        if score >= self.score:
            self.score, self.step = score, step

    def note(self, step: int) -> str:
        """Return what to show beside the scores of an evaluation at `step`."""
        if self.step < 0:
            return ""
        if self.step != step:
            return f"best: step {self.step}"
        is_equal = self.gain_step != step
        return f"as good as step {self.gain_step}" if is_equal else "best so far"

    def why_stopped(self) -> str:
        """Return why a run ends whose patience is lost."""
        if self.gain_step < 0:
            return f"{self.num_without_gain} evaluations had no finite score"
        return (
            f"{self.num_without_gain} evaluations in a row had no higher score than "
            f"that of step {self.gain_step}"
        )
