"""Reasons for a run to end early: signals, non-finite gradients, errors and hangs."""

import contextlib
import faulthandler
import math
import os
import signal
import threading
import time
from types import FrameType
from typing import Any

from bert_jax.distributed.collectives import is_primary
from bert_jax.terminal.messages import say, warn
from bert_jax.terminal.signals import LISTENERS

MAX_SKIPPED_IN_A_ROW = 50
RETRY_SAVE = 1
"""Exchanged between processes like a signal's number: a failed save must be retried."""


class InterruptedRun(Exception):
    """A signal ended the run, after a checkpoint was completed."""

    def __init__(self, signal_number: int, step: int, saved: bool = True) -> None:
        """`saved`: whether `step` has a checkpoint; none while updates are skipped."""
        name = signal.Signals(signal_number).name
        where = "" if saved else " from an earlier checkpoint"
        purpose = f"resume{where}" if step else "begin"
        super().__init__(
            f"Stopped by {name} at step {step}, with{'' if saved else 'out'} a "
            f"checkpoint; start the same command again to {purpose}."
        )
        self.exit_code = 128 + signal_number


class StopRequested(Exception):
    """A signal requests the end of the run; raised and caught inside the loop."""

    def __init__(self, signal_number: int) -> None:
        self.signal_number = signal_number


class DivergedRun(RuntimeError):
    """The gradient, the parameters or the loss of a run are not finite."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; lower optimizer.peak_learning_rate or compute in float32, in "
            "another workdir, with --init-from an earlier checkpoint."
        )


def finite_scores(scores: dict[str, float] | None, step: int) -> dict[str, float]:
    """Return the last scores; raise DivergedRun if their loss is not finite."""
    if not math.isfinite((scores or {}).get("loss", 0.0)):
        raise DivergedRun(f"The validation loss is not finite at step {step}")
    return scores or {}


def check_finite(skipped_in_a_row: float, step: int, is_last: bool) -> None:
    """Raise DivergedRun if `MAX_SKIPPED_IN_A_ROW` updates or the last are skipped."""
    if skipped_in_a_row >= (1 if is_last else MAX_SKIPPED_IN_A_ROW):
        steps = f"{int(skipped_in_a_row)} steps in a row up to step {step}"
        raise DivergedRun(f"The gradient was not finite for {steps}")


class StopSignals:
    """While entered, stores SIGTERM and SIGINT in `received` instead of ending.

    A line says so at once, though the step may take minutes. A second signal of the
    same kind is handled as before `__enter__`, at once.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}
        self._untold = threading.Lock()

    def __enter__(self) -> "StopSignals":
        LISTENERS.append(self._tell)
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._previous[number] = signal.signal(number, self._handle)
            except ValueError:
                # Only the main thread may set handlers; in others the caller does.
                break
        return self

    def __exit__(self, *_: object) -> None:
        LISTENERS.remove(self._tell)
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _tell(self, number: int) -> None:
        """Say it once, by the first of two threads of the primary process."""
        is_ours = number in self._previous and is_primary()
        if is_ours and self._untold.acquire(blocking=False):
            name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
            with contextlib.suppress(OSError, ValueError):  # its reader is gone
                say(
                    f"{name}: the run stops after this step, with a checkpoint; "
                    f"{name} again ends it without one."
                )

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            # This handler may have interrupted a line that is being printed.
            threading.Thread(target=self._tell, args=(number,), daemon=True).start()
        elif self.received == number:
            signal.signal(number, self._previous[number])
            signal.raise_signal(number)


class Watchdog:
    """While entered, aborts the process if `beat` is not called for some minutes.

    Until the first step has ended another limit applies, since it compiles. The stack
    of every thread is printed, then the process ends with SIGABRT (exit code 134);
    launchers start it again.
    """

    def __init__(self, minutes: float, first_minutes: float = 0.0) -> None:
        """Set the limits; 0 is no limit."""
        self._minutes, self._option = first_minutes, "first_step_timeout_minutes"
        self._later_minutes = minutes
        self._last = time.monotonic()
        self._exited = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Watchdog":
        self._last = time.monotonic()
        if self._minutes or self._later_minutes:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._exited.set()
        if self._thread.is_alive():
            self._thread.join()

    def beat(self, has_trained: bool = True) -> None:
        """Restart the countdown; the limit is the later one once a step has ended."""
        self._last = time.monotonic()
        if has_trained:
            self._minutes, self._option = self._later_minutes, "hang_timeout_minutes"

    def _watch(self) -> None:
        shortest = min(filter(None, (self._minutes, self._later_minutes)))
        while not self._exited.wait(min(60 * shortest / 4, 10.0)):
            limit = self._minutes
            if not limit or time.monotonic() - self._last < 60 * limit:
                continue
            warn(
                f"bert-jax: no step has ended for {limit:g} minutes "
                f"({self._option}): a device or another process hangs. The stack "
                "of each thread follows; start the same command again to resume."
            )
            faulthandler.dump_traceback(all_threads=True)
            os.abort()
