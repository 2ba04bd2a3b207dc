"""Lines that say how far a command is."""

import itertools
import types

import pytest

from bert_jax.terminal import progress
from bert_jax.terminal.progress import SECONDS, Progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets; at first it is at 100 seconds."""
    clock = types.SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_a_line_after_a_second_and_then_every_ten(clock):
    lines = []
    progress = Progress("rows", 900, lines.append)
    for now in itertools.accumulate([0.5, 0.5, SECONDS - 1, 2.0], initial=100.0):
        clock.now = now
        progress.advance(30)
    assert lines == [
        "90/900 rows, 90/s, 0:00:09 left",
        "150/900 rows, 12/s, 0:01:00 left",
    ]


def test_of_a_stream_the_rest_is_unknown(clock):
    lines = []
    progress = Progress("rows", tell=lines.append)
    clock.now += 2
    progress.advance(3000)
    assert lines == ["3,000 rows, 1,500/s"]
