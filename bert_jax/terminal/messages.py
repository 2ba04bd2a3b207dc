"""Lines for a user: one each, and nothing in them that a terminal would obey."""

import codecs
import os
import sys
import warnings
from collections.abc import MutableMapping
from typing import Any

TOO_LARGE = (
    "The device has too little memory: take more --microbatches or a smaller "
    "--batch-size; `pretrain … --dry-run --memory-gib N` tells what else helps."
)
_VISIBLE = "bert_jax_visible"
_RUNTIME = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "CANCELLED")
"""How messages of JAX begin where another process or device is gone."""
_SPECIFICATION = " [tensorstore_spec="
"""Where the library that writes arrays begins a kilobyte of JSON."""


class UsageError(ValueError):
    """The command line cannot be understood."""


def printable(text: object) -> str:
    """`text` with every character that does not print written as its escape."""
    shown = str(text)
    try:
        # A name of a file in another encoding than the locale's.
        shown = shown.encode(errors="surrogateescape").decode()
    except UnicodeError:
        pass
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape").decode()
        for character in shown
    )


def one_line(text: object) -> str:
    """`text` as `printable` has it, its lines joined."""
    return printable(" ".join(str(text).split()))


def say(text: object) -> None:
    """Print `text` at once, each of its lines as `printable` has it."""
    print("\n".join(printable(line) for line in str(text).split("\n")), flush=True)


def explain(error: BaseException) -> tuple[str, int] | None:
    """The line for an error, and the exit code; None: it is a mistake of ours.

    2 is for what the user can mend, 1 for a run's own failure.
    """
    if isinstance(error, OSError):
        return _of_system(error), 2
    message = str(error).partition(_SPECIFICATION)[0]
    if isinstance(error, ValueError):
        return message, 2
    if isinstance(error, RecursionError):
        return f"The input nests too deep to be read ({message}).", 2
    if isinstance(error, OverflowError):
        return f"A number in the options or the input is too large ({message}).", 2
    if isinstance(error, MemoryError):
        return _no_memory(message), 1
    if _is_of_devices(error, message):
        asked = os.environ.get("JAX_PLATFORMS", "")
        return (
            f"JAX_PLATFORMS={asked} and JAX finds no such device here; unset it, or "
            f"install JAX for that device (`bert-jax doctor` looks). {message[:200]}",
            2,
        )
    if isinstance(error, ModuleNotFoundError):
        return f"{message}; install it, by pip or as README says.", 2
    return _of_runtime(error, message) if isinstance(error, RuntimeError) else None


def _of_system(error: OSError) -> str:
    """What the system said, after the names of the files that it said it of."""
    if error.strerror is None:
        return str(error)
    names = [printable(n) for n in (error.filename, error.filename2) if n is not None]
    told = [name for name in names if name not in error.strerror]
    return ": ".join([" and ".join(told), error.strerror] if told else [error.strerror])


def _no_memory(message: str) -> str:
    told = f" ({message.rstrip('.')})" if message else ""
    return f"This machine has too little memory for that{told}."


def _is_of_devices(error: BaseException, message: str) -> bool:
    """Whether JAX did not find the devices that it was told to use."""
    if isinstance(error, RuntimeError):
        return "Unable to initialize backend" in message or "nknown backend" in message
    # Where it has no plugin for them it says so by an assertion.
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = last.tb_frame.f_code.co_filename if last is not None else ""
    return isinstance(error, AssertionError) and place.endswith("xla_bridge.py")


def _of_runtime(error: RuntimeError, message: str) -> tuple[str, int] | None:
    # A full disk is exhausted too, in the words of the library that writes arrays.
    if "RESOURCE_EXHAUSTED" in message and "os_error_code" not in message:
        return f"{message[:240].rstrip('.')}. {TOO_LARGE}", 1
    known = type(error) is RuntimeError or message.startswith(_RUNTIME)
    return (message, 1) if known else None


def without_abandoned_writes(unraisable: Any) -> None:
    """What Python does with an error that nothing can catch, but for one.

    Where a write of a checkpoint fails, as on a full disk, the threads of the others
    find that their event loop is gone, and each would print so.
    """
    if str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


def write_any_text() -> None:
    """Have the standard streams take every character, whatever the locale.

    What the encoding lacks is written as its escape, and names of files as their bytes.
    """
    codecs.register_error(_VISIBLE, _visible)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=_VISIBLE)


def _visible(error: UnicodeError) -> tuple[str | bytes, int]:
    """What to write for what cannot be encoded."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def silence_resource_tracker(environment: MutableMapping[str, str]) -> None:
    """Let Python remove the semaphores of worker processes without a warning.

    A process of its own does so where a signal has ended this one. What the user has
    set in `PYTHONWARNINGS` is kept.
    """
    environment.setdefault("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")


def show_warnings_in_a_line() -> None:
    """Print a warning to a user as a line, and not as a place in the source."""
    usual = warnings.formatwarning

    def shown(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        line: str | None = None,
    ) -> str:
        if category is UserWarning:
            return f"bert-jax: warning: {one_line(message)}\n"
        return usual(message, category, filename, lineno, line)

    warnings.formatwarning = shown
