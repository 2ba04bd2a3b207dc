"""How a verb reads its options, by tyro."""

import contextlib
import io
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
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


def load_config(path: str, kind: type[ConfigT]) -> ConfigT:
    """The object that a configuration file binds to the name `config`.

    Raises:
        UsageError: the file is missing, fails, or does not bind `config` to a `kind`.
    """
    if not Path(path).is_file():
        raise UsageError(f"{path} is not a file; name a configuration file.")
    try:
        config = runpy.run_path(path).get("config")
    except Exception as error:
        raise UsageError(f"{path} fails: {type(error).__name__}: {error}") from error
    if not isinstance(config, kind):
        raise UsageError(f"{path} must bind the name config to a {kind.__name__}.")
    return config
