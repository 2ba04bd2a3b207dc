"""Abort a process that hangs: one that finishes no step for a long time."""

import faulthandler
import os
import sys
import threading
import time


class Watchdog:
    """While entered, aborts the process if `beat` is not called for some minutes.

    The time counts from the first call, so the first step may compile for as long as it
    needs. The stack of every thread is printed, then the process ends with SIGABRT
    (exit code 134); launchers start it again.
    """

    def __init__(self, minutes: float) -> None:
        """Set the limit; 0 makes the watchdog a no-op."""
        self._seconds = 60 * minutes
        self._last: float | None = None
        self._exited = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Watchdog":
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._exited.set()
        if self._thread.is_alive():
            self._thread.join()

    def beat(self) -> None:
        """Restart the countdown."""
        self._last = time.monotonic()

    def _watch(self) -> None:
        while not self._exited.wait(min(self._seconds / 4, 10.0)):
            if self._last is None or time.monotonic() - self._last < self._seconds:
                continue
            print(
                f"bert-jax: no step has ended for {self._seconds / 60:g} minutes "
                "(hang_timeout_minutes): a device or another process hangs. The stack "
                "of each thread follows; start the same command again to resume.",
                file=sys.stderr,
                flush=True,
            )
            faulthandler.dump_traceback(all_threads=True)
            os.abort()
