"""Default handling of SIGINT and SIGTERM, for verbs that do not handle them.

They end the process with exit code 130 or 143, without a traceback, from the start on.
This module imports nothing that takes time.
"""

import _thread
import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

TIDY_SECONDS = 10
"""Seconds that a verb has to clean up after SIGINT."""
LISTENERS: list[Callable[[int], None]] = []
"""Called with the number of a signal, by a thread, while the main one may be busy."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_RAISED: list[int] = []
"""Signals for which KeyboardInterrupt was raised."""


def install() -> None:
    """Make both signals end the process at once; a second call is a no-op.

    A signal that is ignored, as under nohup, stays ignored. Call it in the main thread.
    """
    if signal.getsignal(signal.SIGTERM) is not stop_at_once:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, stop_at_once)
        if signal.getsignal(signal.SIGTERM) is stop_at_once:
            _handle_in_thread()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)  # see `blocked`


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGINT raise KeyboardInterrupt in the body, so that a verb can clean up.

    A no-op if `install` was not called.
    """
    installed = signal.getsignal(signal.SIGINT) is stop_at_once
    try:
        if installed:
            signal.signal(signal.SIGINT, _interrupt)
        yield
    finally:
        if installed:
            signal.signal(signal.SIGINT, stop_at_once)


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Block both signals; across an exec, until `install` is called again."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def stop_at_once(number: int, _: FrameType | None = None) -> None:
    """End this process with the exit code of one that the signal killed."""
    os._exit(128 + number)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, so that a verb can clean up; during an import, end.

    An exception during an import may be swallowed, or printed by a callback that cannot
    raise it. There is nothing to clean up then.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            stop_at_once(number)
        frame = frame.f_back
    _thread.start_new_thread(_stop_later, (number,))
    _RAISED.append(number)
    sys.unraisablehook = lambda _: None  # of objects that are left half-made
    raise KeyboardInterrupt


def interrupted() -> bool:
    """Return whether SIGINT ends the process: it is why whatever fails now does."""
    return bool(_RAISED)


def _stop_later(number: int) -> None:
    """End the process in case the exception was swallowed, as by a callback."""
    time.sleep(TIDY_SECONDS)
    stop_at_once(number)


def _handle_in_thread() -> None:
    """Make SIGTERM end the process even while the main thread is in a C library.

    Python calls a handler only when the main thread returns from there, which may take
    minutes: a compilation, or a coordinator that does not answer. `LISTENERS` are
    called at once, too.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def wait_for_signals() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while numbers := os.read(reading, 64):
            installed = signal.getsignal(signal.SIGTERM) is stop_at_once
            if installed and signal.SIGTERM in numbers:
                stop_at_once(signal.SIGTERM)
            for listener, number in itertools.product(tuple(LISTENERS), numbers):
                listener(number)

    if hasattr(signal, "pthread_sigmask"):
        _thread.start_new_thread(wait_for_signals, ())
