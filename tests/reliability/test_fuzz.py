"""Every reader of files over damaged files: it takes them or refuses them in a line.

A crash is an exception other than ValueError and OSError, or the end of the process; a
refusal must name the file or its directory; no read may take five seconds.
"""

import collections
from collections.abc import Callable

import pytest
from fuzz_readers import READERS
from long_lived import Worker

QUICK, WHOLE = 12, 500
CHUNK = 125
"""Mutants of one test, so that two processes share the work."""
SUITE = "fuzz, mutants of each reader"
BAR = "0 crashes, 0 over 5 s"
COUNTS = [
    (0, QUICK),
    *(
        pytest.param(first, CHUNK, marks=pytest.mark.reliability)
        for first in range(0, WHOLE, CHUNK)
    ),
]


@pytest.mark.parametrize(("first", "count"), COUNTS)
@pytest.mark.parametrize("name", READERS)
def test_reader(
    name: str,
    first: int,
    count: int,
    worker: Worker,
    record_row: Callable[[str, int, str, str], None],
):
    kinds: collections.Counter[str] = collections.Counter()
    problems, slowest = [], 0.0
    for number in range(first + 1, first + count + 1):
        answer = worker.ask(reader=name, number=number)
        kinds[answer["kind"]] += 1
        slowest = max(slowest, answer["seconds"])
        if answer["kind"] not in ("taken", "refused") or answer["seconds"] > 5:
            kept = answer.get("kept", "")
            problems.append(
                f"mutant {number} {kept}: {answer['kind']} {answer['said']}"
            )
    assert not problems, f"{name}: {len(problems)} of {count}\n" + "\n".join(
        problems[:5]
    )
    # A damaged step is passed over, and a damaged cache made again.
    if name not in ("checkpoint-manifest", "example-cache"):
        assert kinds["refused"], "no mutant was refused, so nothing was read"
    record_row(SUITE, count, BAR, f"holds; the slowest took under {1 + int(slowest)} s")
