"""A line now and then that says how far a command is."""

import time

from bert_jax.terminal.messages import say

SECONDS = 10.0
"""Between two lines; the first comes after a second."""


class Progress:
    """Prints how many of something are done, how fast, and how long the rest takes."""

    def __init__(self, unit: str, total: int = 0) -> None:
        """Start the clock.

        Args:
            unit: the plural of what is counted.
            total: their number, about; 0: unknown.
        """
        self._unit, self._total, self._done = unit, total, 0
        self._start = time.monotonic()
        self._next = self._start + 1

    def advance(self, number: int) -> None:
        """Count some more; print a line if it is time."""
        self._done += number
        now = time.monotonic()
        if now >= self._next:
            self._next = now + SECONDS
            say(self.line(now - self._start))

    def line(self, seconds: float) -> str:
        """Return the line after some seconds: 1,024/9,000 rows, 310/s, 0:00:26 left."""
        rate = self._done / max(seconds, 1e-9)
        of = f"/{self._total:,}" if self._total else ""
        left = max(self._total - self._done, 0) / max(rate, 1e-9)
        rest = f", {format_duration(left)} left" if self._total else ""
        return f"{self._done:,}{of} {self._unit}, {rate:,.0f}/s{rest}"


def format_duration(seconds: float) -> str:
    """Return seconds as H:MM:SS."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
