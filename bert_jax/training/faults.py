"""Reasons for a run to end early: signals, non-finite gradients and errors."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

MAX_SKIPPED_IN_A_ROW = 50
RETRY_SAVE = 1
"""Exchanged between processes like a signal's number: a failed save must be retried."""


class InterruptedRun(Exception):
    """A signal ended the run, after a checkpoint was completed."""

    def __init__(self, signal_number: int, step: int, saved: bool = True) -> None:
        """`saved`: whether `step` has a checkpoint; none while updates are skipped."""
        name = signal.Signals(signal_number).name
        where = "" if saved else " from an earlier checkpoint"
        super().__init__(
            f"Stopped by {name} at step {step}, with{'' if saved else 'out'} a "
            f"checkpoint; start the same command again to resume{where}."
        )
        self.exit_code = 128 + signal_number


class StopRequested(Exception):
    """A signal requests the end of the run; raised and caught inside the loop."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


class DivergedRun(RuntimeError):
    """The gradient was not finite for many steps in a row."""


def check_finite(skipped_in_a_row: float, step: int) -> None:
    """Check that the run still updates its parameters.

    Raises:
        DivergedRun: `MAX_SKIPPED_IN_A_ROW` updates in a row were skipped.
    """
    if skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
        raise DivergedRun(
            f"The gradient was not finite for {int(skipped_in_a_row)} steps in a row "
            f"up to step {step}; lower optimizer.peak_learning_rate or compute in "
            "float32, in another workdir, with --init-from an earlier checkpoint."
        )


@contextlib.contextmanager
def reraise_as_run_failure(has_started: Callable[[], bool]) -> Iterator[None]:
    """Reraise a ValueError or OSError as RuntimeError once the run has started.

    These errors mean a user's mistake (exit code 2) only before the first step has
    ended, which `has_started` tells.
    """
    try:
        yield
    except BrokenPipeError:  # the reader of the output is gone, as for any command
        raise
    except (ValueError, OSError) as error:
        if not has_started():
            raise
        line = " ".join(str(error).split()).rstrip(".")
        raise RuntimeError(
            f"The run failed: {line}. Fix the cause and start the same command again; "
            "it resumes from its newest checkpoint."
        ) from error


class StopSignals:
    """While entered, stores SIGTERM and SIGINT in `received` instead of ending.

    A second signal of the same kind is handled as before `__enter__`, at once.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._previous[number] = signal.signal(number, self._handle)
            except ValueError:
                # Only the main thread may set handlers; in others the caller does.
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received = number
        elif self.received == number:
            signal.signal(number, self._previous[number])
            signal.raise_signal(number)
