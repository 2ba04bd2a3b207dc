"""The CPU cores of this process, and workers that end with it."""

import multiprocessing
import os
import signal
import sys
import threading
import types
from multiprocessing.context import SpawnContext, SpawnProcess

_STARTING = threading.Lock()
"""Held while the main module is hidden: two threads could each restore the other's."""


class _HiddenMain(SpawnProcess):
    """A process that does not run the program's main module again.

    Else a script without `if __name__ == "__main__"` would begin once more in each.
    """

    def start(self) -> None:
        with _STARTING:
            main = sys.modules["__main__"]
            sys.modules["__main__"] = types.ModuleType("__main__")  # of no file
            try:
                super().start()
            finally:
                sys.modules["__main__"] = main


class WorkerContext(SpawnContext):
    """Starts workers; a fork of a process with threads may deadlock."""

    Process = _HiddenMain


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def end_with_parent() -> None:
    """Exit this process when its parent ends for any reason; leave Ctrl-C to that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
