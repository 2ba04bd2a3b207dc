"""Lines that say how far a command is, or what it waits for."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable

from bert_jax.terminal.messages import say

SECONDS = 10.0
"""Between two lines; the first comes after a second."""
_WAITING_SECONDS = 60.0
"""Between two lines on the same wait; the first comes after `SECONDS`."""


def tell_terminal(line: str) -> None:
    """Print a line on standard error if that is a terminal: no program reads it."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)


class Progress:
    """Prints how many of something are done, how fast, and how long the rest takes."""

    def __init__(
        self, unit: str, total: int = 0, tell: Callable[[str], None] = say
    ) -> None:
        """Count a `unit`, a plural, of which there are about `total` (0: unknown)."""
        self._unit, self._total, self._done = unit, total, 0
        self._tell = tell
        self._start = time.monotonic()
        self._next = self._start + 1

    def advance(self, number: int) -> None:
        """Count some more; print a line if it is time."""
        self._done += number
        now = time.monotonic()
        if now >= self._next:
            self._next = now + SECONDS
            self._tell(self.line(now - self._start))

    def line(self, seconds: float) -> str:
        """Return the line after some seconds: 1,024/9,000 rows, 310/s, 0:00:26 left."""
        rate = self._done / max(seconds, 1e-9)
        of = f"/{self._total:,}" if self._total else ""
        left = max(self._total - self._done, 0) / max(rate, 1e-9)
        rest = f", {format_duration(left)} left" if self._total else ""
        return f"{self._done:,}{of} {self._unit}, {rate:,.0f}/s{rest}"


class Waiting(contextlib.AbstractContextManager["Waiting", None]):
    """While entered, says what is waited for, and for how many seconds already.

    It uses a thread: what is waited for, such as a compilation, blocks the caller's.
    """

    def __init__(
        self,
        what: str,
        status: Callable[[str], None] | None = None,
        says_end: bool = True,
    ) -> None:
        """Take what is waited for, such as "compiling the model".

        `status` shows a text in place of the one before, about every second; without
        it, a line is printed now and then and, with `says_end`, one at the end.
        """
        self._what, self._status, self._says_end = what, status, says_end
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> "Waiting":
        self._start = time.monotonic()
        if self._status:
            self._status(f"{self._what} …")
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        seconds = time.monotonic() - self._start
        if self._status:
            self._status("")
        elif self._says_end and seconds >= 1 and error[0] is None:
            say(f"{self._what}: {seconds:.1f} s")

    def _tell(self) -> None:
        pause = 1.0 if self._status else SECONDS
        while not self._ended.wait(pause):
            text = f"{self._what} … {time.monotonic() - self._start:.0f} s"
            if self._status:
                self._status(text)
                continue
            with contextlib.suppress(OSError):  # the caller's next line raises it too
                say(text)
            pause = _WAITING_SECONDS


def format_duration(seconds: float) -> str:
    """Return seconds as H:MM:SS."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
