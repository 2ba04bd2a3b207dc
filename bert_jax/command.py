"""How a verb reads its options, by tyro."""

import contextlib
import io
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

ConfigT = TypeVar("ConfigT")


class UsageError(ValueError):
    """The command line cannot be understood."""


def parse_options(
    command: Callable[..., ConfigT], verb: str, args: Sequence[str]
) -> ConfigT:
    """Build the arguments of `command` from the command line, and call it.

    `command` only gathers what it is given: tyro takes a ValueError that it raises for
    a misprint, and draws a box around it. Where a configuration refuses a value, its
    own line is the better answer, so that is raised on.
    """
    import tyro

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                command,
                prog=f"bert-jax {verb}",
                args=list(args),
            )
    except SystemExit as stop:
        failure = stop.__context__
        # tyro wraps what a part of the configuration refuses, naming the part by a
        # string; what the whole refuses it does not, and it names an option otherwise.
        if isinstance(getattr(failure, "arg", None), str):
            failure = failure.__context__ if failure else None
        if isinstance(failure, ValueError):
            raise failure from None
        print(complaint.getvalue(), end="", file=sys.stderr)
        raise
