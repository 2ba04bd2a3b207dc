"""Bit flips and damaged files: each is detected, or proven unused.

Of a workdir with two whole checkpoints `load`, `inspect` and a run that goes on take
the newest that is whole, and name the damaged one.
"""

import collections
from collections.abc import Callable

import pytest
from damages import SUBJECTS
from long_lived import Worker

Record = Callable[[str, int, str, str], None]
BAR = "each detected or proven unused"


def expect(
    worker: Worker, count: int, first: int = 0, **job: str
) -> collections.Counter[str]:
    """How many damages of `count` were detected, and how many unused; no other."""
    kinds: collections.Counter[str] = collections.Counter()
    for number in range(first, first + count):
        answer = worker.ask(number=number, **job)
        kinds[answer["kind"]] += 1
        told = f"damage {number} of {job}: {answer['kind']}\n{answer['said']}"
        assert answer["kind"] in ("detected", "unused"), told
    return kinds


def told(kinds: collections.Counter[str]) -> str:
    """The counts as the table shows them."""
    return f"{kinds['detected']} detected, {kinds['unused']} unused"


def counts(*each: tuple[str, int, int]) -> list[object]:
    """Parameters `how`, `first` and `count`: a few, and the whole count."""
    quick = [(how, 0, few) for how, few, _ in each if few]
    whole = []
    for how, _, many in each:
        for first in range(0, many, 200):
            size = min(200, many - first)
            whole.append(pytest.param(how, first, size, marks=pytest.mark.reliability))
    return [*quick, *whole]


@pytest.mark.parametrize(
    ("how", "first", "count"), counts(("flip", 3, 800), ("manifest", 8, 200))
)
def test_bit_flips_of_a_checkpoint(
    how: str, first: int, count: int, worker: Worker, record_row: Record
):
    kinds = expect(worker, count, first, subject="checkpoint", how=how)
    assert kinds["detected"]
    record_row("bit flips of a checkpoint", count, BAR, told(kinds))


@pytest.mark.parametrize(("how", "first", "count"), counts(("file", 12, 168)))
def test_file_damage_of_a_checkpoint(
    how: str, first: int, count: int, worker: Worker, record_row: Record
):
    kinds = expect(worker, count, first, subject="checkpoint", how=how)
    assert kinds["detected"]
    record_row("damaged files of a checkpoint", count, BAR, told(kinds))


@pytest.mark.parametrize(("how", "first", "count"), counts(("file", 4, 24)))
def test_inspect_shows_the_newest_whole_step(
    how: str, first: int, count: int, worker: Worker, record_row: Record
):
    job = {"subject": "checkpoint", "how": how, "door": "inspected"}
    kinds = expect(worker, count, first, **job)
    record_row("inspect of a damaged checkpoint", count, "shows the older", told(kinds))


@pytest.mark.parametrize(
    ("how", "first", "count"), counts(("flip", 0, 12), ("file", 1, 12))
)
def test_a_run_goes_on_from_the_newest_whole_step(
    how: str, first: int, count: int, worker: Worker, record_row: Record
):
    job = {"subject": "checkpoint", "how": how, "door": "resumed"}
    kinds = expect(worker, count, first, **job)
    record_row("resume over a damaged checkpoint", count, "from the older", told(kinds))


@pytest.mark.parametrize(
    ("how", "first", "count"),
    counts(("flip", 10, 100), ("manifest", 4, 34), ("file", 16, 34)),
)
@pytest.mark.parametrize("name", [name for name in SUBJECTS if name != "checkpoint"])
def test_damage_of_datasets_and_models(
    name: str, how: str, first: int, count: int, worker: Worker, record_row: Record
):
    kinds = expect(worker, count, first, subject=name, how=how)
    record_row("damaged datasets and models", count, BAR, told(kinds))
