"""The logger `bert_jax`: where messages go, and how a program redirects them."""

import contextlib
import errno
import logging
import os
import subprocess
import sys
import time

import pytest

from bert_jax.terminal.messages import explain, say, warn
from bert_jax.terminal.progress import Waiting

PROGRAM = """
import logging, sys
{before}
import bert_jax
from bert_jax.terminal.messages import say, warn
{after}
say("step 1")
warn("a problem")
"""


def run(before: str = "", after: str = "") -> tuple[str, str]:
    program = PROGRAM.format(before=before, after=after)
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return result.stdout, result.stderr


def test_information_and_warnings_have_their_streams(capsys):
    say("one\ntwo\x1b[2J")
    warn("three")
    captured = capsys.readouterr()
    assert captured.out == "one\ntwo\\x1b[2J\n"
    assert captured.err == "three\n"


@pytest.mark.parametrize(
    ("before", "after", "out", "err"),
    [
        ("", "", "step 1\n", "a problem\n"),
        ("", "logging.getLogger('bert_jax').setLevel('WARNING')", "", "a problem\n"),
        ("", "logging.getLogger('bert_jax').handlers.clear()", "", "a problem\n"),
        (
            "import bert_jax; logging.getLogger('bert_jax').setLevel('ERROR')",
            "",
            "",
            "",
        ),
        # A handler that the program set before takes all messages.
        (
            "handler = logging.StreamHandler(sys.stdout)\n"
            "handler.setFormatter(logging.Formatter('%(levelname)s %(message)s'))\n"
            "logging.getLogger('bert_jax').addHandler(handler)",
            "",
            "INFO step 1\nWARNING a problem\n",
            "",
        ),
        # A program that configured Python's own logging does not get lines twice.
        ("logging.basicConfig(stream=sys.stdout)", "", "step 1\n", "a problem\n"),
    ],
)
def test_a_program_silences_or_redirects_them(before, after, out, err):
    assert run(before, after) == (out, err)


def test_a_wait_is_shown_with_its_seconds():
    shown: list[str] = []
    with Waiting("compiling", shown.append):
        time.sleep(1.2)
    assert shown[0] == "compiling …"
    assert shown[1] == "compiling … 1 s"
    assert shown[-1] == ""


def test_a_short_wait_prints_nothing_and_a_longer_one_its_time(capsys):
    with Waiting("compiling"):
        pass
    assert capsys.readouterr().out == ""
    with Waiting("compiling"):
        time.sleep(1.05)
    assert capsys.readouterr().out.startswith("compiling: 1.")


def test_a_wait_that_fails_prints_no_time(capsys):
    with contextlib.suppress(ValueError), Waiting("compiling"):
        time.sleep(1.05)
        raise ValueError("broken")
    assert capsys.readouterr().out == ""


def test_the_logger_is_named_as_the_package():
    assert logging.getLogger("bert_jax").handlers


@pytest.mark.parametrize("name", ["d", "file", "runs/a"])
def test_an_error_names_its_file_whatever_the_name_is(name):
    """A name of few letters is part of the system's words, too."""
    error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    assert explain(error) == (f"{name}: No such file or directory", 2)
