"""The command line: find the verb, run it, and report an error in one line."""

import contextlib
import difflib
import importlib
import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TextIO

from bert_jax.cli import completion
from bert_jax.cli.command import parse
from bert_jax.cli.foreign import COMMANDS
from bert_jax.cli.help import HELP, asks, print_help
from bert_jax.cli.names import with_present_names
from bert_jax.cli.verbs import GROUPS, USAGE, VERBS
from bert_jax.distributed import environment
from bert_jax.terminal import messages, signals
from bert_jax.terminal.messages import UsageError, one_line

COMPUTING = set(
    "pretrain finetune evaluate predict features reproduce benchmark demo".split()
)
"""Verbs that spend their time in steps of a model, and gain from huge pages."""


def run_verb(arguments: Sequence[str]) -> int:
    """Run the verb of the arguments; return its exit code, or raise UsageError."""
    first, *rest = arguments or ["--help"]
    if first == "help" and rest:
        return run_verb([*rest, "--help"])
    if first in HELP:
        print(USAGE, end="")
    elif first == "--version":
        from importlib.metadata import version

        print(f"bert_jax {version('bert_jax')}")
    elif first in completion.COMPLETION:
        print(completion.script(rest), end="")
    elif first == completion.ASK:
        sys.stdout.writelines(f"{word}\n" for word in completion.answer(rest))
    elif first in GROUPS and (not rest or rest[0] in HELP):
        print_group_help(first)
    else:
        name = verb_name(arguments)
        words = [with_home(word) for word in arguments[len(name.split()) :]]
        if asks(words):
            print_help(name, words)
            return 0
        verb = VERBS[name]
        read = verb.load(verb.read) if verb.read else parse
        options_class = verb.load(verb.options)
        words = with_present_names(options_class, words, name)
        options = read(options_class, words, name)
        return verb.load(verb.run)(options) or 0
    return 0


def with_home(word: str) -> str:
    """Return a word with the home directory for ~ at the start of a path.

    A shell replaces it in ~/text, but not after the `=` of an option or in quotes,
    where patterns are.
    """
    if not re.match(r"(--[\w.-]+=)?([\w-]+=)?~(/|$)", word):
        return word
    home = os.path.expanduser("~")
    return re.sub(r"(^|=|,)~(?=/|$)", lambda before: before[1] + home, word)


def verb_name(arguments: Sequence[str]) -> str:
    """Return the verb, of one or two words, at the start, or raise UsageError."""
    first, *rest = arguments
    if first in VERBS:
        return first
    if first not in GROUPS:
        names = COMMANDS.get(first, "").split("|")
        if first not in COMMANDS:
            names = difflib.get_close_matches(first, [*VERBS, *GROUPS], n=1)
        meant = " or ".join(names)
        hint = f"did you mean {meant}?" if meant else "bert-jax --help lists them."
        raise UsageError(f"{first!r} is not a verb; {hint}")
    verbs = ", ".join(name.split()[1] for name in VERBS if name.startswith(f"{first} "))
    if f"{first} {rest[0]}" not in VERBS:
        raise UsageError(f"{first} {rest[0]!r} must be {first} {verbs}.")
    return f"{first} {rest[0]}"


def print_group_help(group: str) -> None:
    """Print the verbs of a group, with the docstrings of their options."""
    print(f"usage: bert-jax {group} VERB [OPTIONS]    VERB --help lists the options\n")
    for name, verb in VERBS.items():
        if name.startswith(f"{group} "):
            print(f"  {name.split()[1]:11} {verb.load(verb.options).__doc__}")


def discard(stream: TextIO) -> None:
    """Let a stream that cannot be written take what it holds, and all that follows."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def flushed_output() -> Iterator[None]:
    """Write what standard output holds at the end of the block.

    Python would do it last of all, where an error is no line and has its own exit code.
    Raise OSError if it cannot be written, unless the block has failed by another error.
    """
    try:
        yield
    finally:
        try:
            if not getattr(sys.stdout, "closed", True):  # or it is None
                sys.stdout.flush()
        except OSError as error:
            from bert_jax.storage.files import name_path_in_errors

            discard(sys.stdout)
            if isinstance(error.__context__, OSError | None):  # else it is the second
                with name_path_in_errors("standard output"):
                    raise


def main(
    arguments: Sequence[str] | None = None,
    run: Callable[[Sequence[str]], int] = run_verb,
) -> int:
    """Run the command line; a user's mistake is one line, and exit code 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    if not debug:
        # Orbax also logs the tracebacks of errors that it raises; asyncio logs those
        # of the other writes that the same full disk ended.
        for name in ("absl", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        sys.unraisablehook = messages.ignore_closed_event_loop
        warnings.filterwarnings("ignore", ".* was never awaited", RuntimeWarning)
    if completion.ASK not in arguments[:1]:
        arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        with signals.interruptible(), flushed_output():
            return run(arguments)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output has closed it, as in `bert-jax … | head`. Exit as
        # after SIGPIPE.
        return 128 + signal.SIGPIPE
    except Exception as error:
        if debug:
            raise
        if signals.interrupted():  # a library raised it where it was interrupted
            return 128 + signal.SIGINT
        return report(error)


def report(error: Exception) -> int:
    """Print an error in one line, and return its exit code; raise a bug of ours."""
    from bert_jax.training.faults import DivergedRun, InterruptedRun

    explained = messages.explain(error)
    if isinstance(error, DivergedRun):
        explained = str(error), 1
    if isinstance(error, InterruptedRun):
        line, code = one_line(error), error.exit_code
    elif explained is None:
        raise error
    else:
        line, code = f"bert-jax: {one_line(explained[0])}", explained[1]
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:  # no one reads it, and the exit code is what is left to say
        discard(sys.stderr)
    return code


def entry_point(*room: str) -> NoReturn:
    """Run the command `bert-jax`, or `python -m bert_jax.ROOM`."""
    signals.install()
    messages.write_any_text()
    messages.show_warnings_in_a_line()
    messages.silence_resource_tracker(os.environ)
    words = [word for word in (*room, *sys.argv[1:]) if word != "--debug"]
    if COMPUTING.intersection(words[:1]):
        with signals.blocked():
            environment.reexec_with_huge_pages(os.environ)
    run = importlib.import_module(f"bert_jax.apps.{room[0]}").main if room else run_verb
    sys.exit(main(run=run))
