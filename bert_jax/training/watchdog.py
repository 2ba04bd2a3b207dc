"""Ends a process that hangs: one that has finished no step for a long time."""

import faulthandler
import os
import sys
import threading
import time


class Watchdog:
    """While entered, aborts the process when `beat` was not called for some minutes.

    It begins with the first call, so that a first step may compile for as long as it
    takes. The process ends with SIGABRT (exit code 134) after every thread's stack was
    printed; launchers start it again.
    """

    def __init__(self, minutes: float) -> None:
        """Watch with this limit; 0: do not watch."""
        self._seconds = 60 * minutes
        self._last: float | None = None
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Watchdog":
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        if self._thread.is_alive():
            self._thread.join()

    def beat(self) -> None:
        """Note that something was finished."""
        self._last = time.monotonic()

    def _watch(self) -> None:
        while not self._left.wait(min(self._seconds / 4, 10.0)):
            if self._last is None or time.monotonic() - self._last < self._seconds:
                continue
            print(
                f"bert-jax: no step has ended for {self._seconds / 60:g} minutes "
                "(hang_timeout_minutes): a device or another process hangs. The stack "
                "of each thread follows; start the same command again to go on.",
                file=sys.stderr,
                flush=True,
            )
            faulthandler.dump_traceback(all_threads=True)
            os.abort()
