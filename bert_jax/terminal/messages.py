"""Messages to the user: one line each, without terminal control characters."""

import codecs
import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import MutableMapping
from typing import Any

from bert_jax.terminal.log import LOGGER

TOO_LARGE = (
    "The device has too little memory: use more --microbatches or a smaller "
    "--batch-size; `pretrain … --dry-run --memory-gib N` shows what else helps."
)
_ESCAPE = "bert_jax_escape"
_RUNTIME = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "CANCELLED")
"""Beginnings of JAX's messages when another process or a device is lost."""
_SPECIFICATION = " [tensorstore_spec="
"""Beginning of a kilobyte of JSON in tensorstore's messages."""


class UsageError(ValueError):
    """The command line is invalid."""


def printable(text: object) -> str:
    """`text` with each unprintable character replaced by its escape sequence."""
    line = str(text)
    # A file name may be in another encoding than the locale's.
    with contextlib.suppress(UnicodeError):
        line = line.encode(errors="surrogateescape").decode()
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in line
    )


def one_line(text: object) -> str:
    """`text` made `printable`, its lines joined into one."""
    return printable(" ".join(str(text).split()))


def say(text: object) -> None:
    """Log `text` as information; each line is made `printable`."""
    LOGGER.info("%s", _printable_lines(text))


def warn(text: object) -> None:
    """Log `text` as a warning; each line is made `printable`."""
    LOGGER.warning("%s", _printable_lines(text))


def _printable_lines(text: object) -> str:
    return "\n".join(printable(line) for line in str(text).split("\n"))


def explain(error: BaseException) -> tuple[str, int] | None:
    """The message and exit code for an error; None if it is a bug of this package.

    The code is 2 for a user's mistake, 1 for a failure of the run.
    """
    if isinstance(error, OSError):
        return _explain_os_error(error), 2
    message = str(error).partition(_SPECIFICATION)[0]
    if isinstance(error, ValueError):
        return message, 2
    if isinstance(error, RecursionError):
        return f"The input is too deeply nested to be read ({message}).", 2
    if isinstance(error, OverflowError):
        return f"A number in the options or the input is too large ({message}).", 2
    if isinstance(error, MemoryError):
        details = f" ({message.rstrip('.')})" if message else ""
        return f"This machine has too little memory for that{details}.", 1
    if _is_missing_device(error, message):
        name = os.environ.get("JAX_PLATFORMS", "")
        return (
            f"JAX_PLATFORMS={name} and JAX finds no such device here; unset it, or "
            f"install JAX for that device (see `bert-jax doctor`). {message[:200]}",
            2,
        )
    if isinstance(error, ModuleNotFoundError):
        return f"{message}; install it by pip, or as the README says.", 2
    if isinstance(error, RuntimeError):
        # tensorstore reports a full disk as RESOURCE_EXHAUSTED too, with os_error_code.
        if "RESOURCE_EXHAUSTED" in message and "os_error_code" not in message:
            return f"{message[:240].rstrip('.')}. {TOO_LARGE}", 1
        if type(error) is RuntimeError or message.startswith(_RUNTIME):
            return message, 1
    return None


def _explain_os_error(error: OSError) -> str:
    """The system's message, after the names of the files that are not in it."""
    if error.strerror is None:
        return str(error)
    names = [printable(n) for n in (error.filename, error.filename2) if n is not None]
    if error.errno is None or error.strerror != os.strerror(error.errno):
        names = [name for name in names if name not in error.strerror]
    prefix = " and ".join(names)
    return f"{prefix}: {error.strerror}" if prefix else error.strerror


def _is_missing_device(error: BaseException, message: str) -> bool:
    """Whether JAX did not find the devices that JAX_PLATFORMS names."""
    if isinstance(error, RuntimeError):
        return "Unable to initialize backend" in message or "nknown backend" in message
    # Without a plugin for them, JAX fails by an assertion.
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    in_bridge = any(frame.filename.endswith("xla_bridge.py") for frame in frames)
    return isinstance(error, AssertionError) and in_bridge


def ignore_closed_event_loop(unraisable: Any) -> None:
    """A `sys.unraisablehook` that does not print "Event loop is closed".

    When one write of a checkpoint fails, as on a full disk, the threads of the other
    writes all raise that error.
    """
    if str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


def write_any_text() -> None:
    """Make the standard streams accept every character, in any locale.

    Characters that the encoding lacks are escaped; file names are written as bytes.
    """
    codecs.register_error(_ESCAPE, _escape)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=_ESCAPE)


def _escape(error: UnicodeError) -> tuple[str | bytes, int]:
    """Error handler: the bytes of file names, or an escape sequence."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def silence_resource_tracker(environment: MutableMapping[str, str]) -> None:
    """Silence Python's warning about leaked semaphores of worker processes.

    After a signal has ended this process, the resource tracker process removes them and
    warns. A no-op if the user has set `PYTHONWARNINGS`.
    """
    environment.setdefault("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")


def show_warnings_in_a_line() -> None:
    """Print a UserWarning as one line, without its place in the source."""
    default = warnings.formatwarning

    def format_warning(
        message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any
    ) -> str:
        if category is UserWarning:
            return f"bert-jax: warning: {one_line(message)}\n"
        return default(message, category, *args, **kwargs)

    warnings.formatwarning = format_warning
