"""How a verb reads its options, by tyro."""

import contextlib
import dataclasses
import difflib
import io
import re
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from bert_jax.config.checks import did_you_mean
from bert_jax.terminal.messages import UsageError

ConfigT = TypeVar("ConfigT")


@dataclasses.dataclass(frozen=True)
class StartOptions:
    """How a run is started; nothing of it belongs to the run itself."""

    extend: bool = False
    """Go on with the run in workdir for more steps, or at another learning rate, than
    it had so far."""
    deterministic: bool = False
    """On GPUs, the same bits from the same run; slower."""
    initialization_timeout: int = 300
    """Seconds that several processes wait for each other at the start."""


DEFAULT_START = StartOptions()


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
        if stop.code:
            raise UsageError(in_a_line(complaint.getvalue(), verb)) from None
        raise


def in_a_line(box: str, verb: str) -> str:
    """What tyro draws in a box, in a line.

    Args:
        box: a title, then paragraphs between rules: the fault, and options like it.
        verb: for the hint at its options.
    """
    paragraphs: list[list[str]] = [[]]
    for line in box.splitlines()[1:]:
        text = re.sub(r"^[│╰ ] ?|[│╯]$", "", line).rstrip()
        if text.strip("─- "):
            paragraphs[-1].append(text)
        elif text:  # a rule; where the locale has no such characters, of hyphens
            paragraphs.append([])
    fault, *rest = [paragraph for paragraph in paragraphs if paragraph] or [[box]]
    told = " ".join(" ".join(fault).split())
    see = f"`bert-jax {verb} --help` tells its options."
    if told.startswith("Missing from"):
        named = (re.match(r" {4}(\S+)", line) for line in fault)
        missing = " and ".join(match[1] for match in named if match)
        return f"{verb} needs {missing}; {see}"
    if told.startswith(_UNKNOWN):
        like = (re.match(r" {4}(--\S+)", line) for part in rest for line in part)
        words = told.removeprefix(_UNKNOWN).split(", ")
        names = [match[1].rstrip(",") for match in like if match]
        return f"{_unknown(verb, words, names)}{see}"
    if match := re.match(
        r"invalid choice '(.*)' for argument '(.*)'\. .*\((.*)\)", told
    ):
        value, option, choices = match.groups()
        allowed = tuple(re.findall(r"'([^']*)'", choices))
        listed = ", ".join(name or "''" for name in allowed)
        hint = did_you_mean(value, allowed) or "."
        return f"{option}={value} must be one of {listed}{hint}"
    for pattern, plain in _PLAINLY.items():
        told = re.sub(pattern, plain, told)
    return f"{told.rstrip('.')}; {see}"


_CHOICE = r"invalid choice '(.*)' for argument '(.*)'\. .*\((.*)\)"
_UNKNOWN = "Unrecognized options: "
_PLAINLY = {
    r"Error parsing (\S+): invalid literal for int.. .*: '(.*)'": (
        r"\1=\2 must be a whole number"
    ),
    r"Error parsing (\S+): could not convert string to float: '(.*)'": (
        r"\1=\2 must be a number"
    ),
    r"Error parsing (\S+): Exceeds the limit .*": r"\1 has too many digits",
    r"Error parsing (\S+): Could not find valid parse for arguments: \[(.*)\]": (
        r"\1=\2 cannot be understood"
    ),
    r"Missing value for argument '(.*)'\. .*": r"\1 needs a value",
}


def _unknown(verb: str, words: list[str], like: list[str]) -> str:
    """What `verb` does not take, and what it does that is like it."""
    options = [word for word in words if word.startswith("-")] or words
    near = [difflib.get_close_matches(option, like, n=1) for option in options]
    hints = [names[0] for names in near if names]
    said = f"{verb} does not take {', '.join(options[:5])}; "
    if hints:
        return f"{said}did you mean {' and '.join(hints)}? "
    if words[0].lower() in ("true", "false", "yes", "no", "0", "1"):
        return f"{said}what is on or off is --NAME or --no-NAME, without a word; "
    return said


def load_config(path: str, kind: type[ConfigT]) -> ConfigT:
    """The object that a configuration file binds to the name `config`.

    Raises:
        UsageError: the file is missing, fails, exits, or does not bind `config` to a
            `kind`.
    """
    if not Path(path).is_file():
        raise UsageError(f"{path} is not a file; name a configuration file.")
    try:
        config = runpy.run_path(path).get("config")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit too: a run that did not begin
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        raise UsageError(f"{path} fails: {reason}; mend it.") from error
    if not isinstance(config, kind):
        raise UsageError(f"{path} must bind the name config to a {kind.__name__}.")
    return config
