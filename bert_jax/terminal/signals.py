"""What SIGINT and SIGTERM do where a verb does not handle them itself.

They end the process by exit codes 130 and 143, without a traceback, from the first
moment on. Nothing is imported here that takes time.
"""

import _thread
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType

TIDY_SECONDS = 10
"""How long a verb may tidy up after SIGINT."""
_BOTH = (signal.SIGINT, signal.SIGTERM)


def install() -> None:
    """End the process at once by either signal; a second call changes nothing.

    A signal that this process was told to ignore, as by nohup, stays ignored. To be
    called in the main thread.
    """
    if signal.getsignal(signal.SIGTERM) is not stop_at_once:
        for number in _BOTH:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, stop_at_once)
        if signal.getsignal(signal.SIGTERM) is stop_at_once:
            _watch()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _BOTH)  # see `blocked`


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Have SIGINT raise KeyboardInterrupt in the block, so that a verb can tidy up.

    Where `install` was not called, signals stay the caller's.
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
    """Hold both signals back; over an exec, until `install` is called again."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _BOTH)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_at_once(number: int, _: FrameType | None = None) -> None:
    """End this process as one that the signal killed."""
    os._exit(128 + number)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, so that a verb can tidy up; in an import, end.

    An exception in the midst of an import may be swallowed, or be printed by a callback
    that cannot raise it; and no file was begun.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            stop_at_once(number)
        frame = frame.f_back
    _thread.start_new_thread(_stop_later, (number,))
    raise KeyboardInterrupt


def _stop_later(number: int) -> None:
    """End the process where the exception was swallowed, as a callback may do."""
    time.sleep(TIDY_SECONDS)
    stop_at_once(number)


def _watch() -> None:
    """Let SIGTERM end the process while the main thread waits in a library too.

    Python calls a handler when its main thread is back from there, which may be
    minutes: a compilation, a coordinator that does not answer.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while numbers := os.read(reading, 64):
            ours = signal.getsignal(signal.SIGTERM) is stop_at_once
            if ours and signal.SIGTERM in numbers:
                stop_at_once(signal.SIGTERM)

    if hasattr(signal, "pthread_sigmask"):
        _thread.start_new_thread(watch, ())
