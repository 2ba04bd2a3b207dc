"""What ends a run early: signals, and gradients that stay non-finite."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

MAX_SKIPPED_IN_A_ROW = 50
SAVE_AGAIN = 1
"""Beside the numbers of signals: a save that has failed is to be tried again."""


class InterruptedRun(Exception):
    """A signal ended the run, after a whole checkpoint was written."""

    def __init__(self, signal_number: int, step: int, saved: bool = True) -> None:
        """Say where the run stopped.

        Args:
            saved: whether `step` has a checkpoint; it has none while updates are left
                out because the gradient is not finite.
        """
        name = signal.Signals(signal_number).name
        kept = "with a checkpoint" if saved else "going on from the one before"
        super().__init__(
            f"Stopped by {name} at step {step}, {kept}; "
            "start the same command again to go on."
        )
        self.exit_code = 128 + signal_number


class StopRequested(Exception):
    """A signal asks a run to end; raised and caught within the loop."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


class DivergedRun(RuntimeError):
    """The gradient was not finite for many steps in a row."""


def check_finite(skipped_in_a_row: float, step: int) -> None:
    """Refuse to go on without learning.

    Raises:
        DivergedRun: `MAX_SKIPPED_IN_A_ROW` updates were left out in a row.
    """
    if skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
        raise DivergedRun(
            f"The gradient was not finite for {int(skipped_in_a_row)} steps in a row "
            f"up to step {step}; lower optimizer.peak_learning_rate or compute in "
            "float32, in another workdir, with --init-from an earlier checkpoint."
        )


@contextlib.contextmanager
def failures_in_the_loop(has_begun: Callable[[], bool]) -> Iterator[None]:
    """Once a run has begun, what fails is no mistake in what it was asked for.

    Args:
        has_begun: whether the first step has ended.

    Raises:
        RuntimeError: instead of a ValueError or OSError, which mean a user's mistake.
    """
    try:
        yield
    except BrokenPipeError:  # whoever read the output has gone, as of any command
        raise
    except (ValueError, OSError) as error:
        if not has_begun():
            raise
        line = " ".join(str(error).split()).rstrip(".")
        raise RuntimeError(
            f"The run failed: {line}. Mend it and start the same command again; it "
            "goes on from its newest checkpoint."
        ) from error


class StopSignals:
    """While entered, SIGTERM and SIGINT are noted instead of ending the process."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._previous[number] = signal.signal(number, self._note)
            except ValueError:
                # Only the main thread may handle signals; elsewhere the caller does.
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received = number
        elif self.received == number:
            # A second one means it: the handler from before takes over at once.
            signal.signal(number, self._previous[number])
            signal.raise_signal(number)
