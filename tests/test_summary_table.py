"""The table at the end of `make reliability`."""

from typing import Any
from unittest import mock

from summary_table import PROPERTY, lines, rows_of


def report(*rows: list[Any], failed: bool = False, when: str = "call") -> Any:
    """What pytest tells of one test."""
    return mock.Mock(
        user_properties=[(PROPERTY, row) for row in rows],
        failed=failed,
        when=when,
        nodeid="tests/reliability/test_x.py::test_it[3]",
        duration=2.0,
    )


def test_rows_of_one_suite_are_added_up():
    kills = ["SIGKILL", 25, "bit-identical", "0 differ", 100.4]
    first, second = rows_of([report(kills), report(kills), report(["a", 1, "", "", 1])])
    assert (first.count, first.seconds) == (50, 200.8)
    heading, line, _ = lines([first, second])
    assert heading.split() == ["suite", "count", "bar", "result", "seconds"]
    assert line.split() == ["SIGKILL", "50", "bit-identical", "0", "differ", "201"]


def test_a_failure_has_a_row():
    (late,) = rows_of([report(["a", 1, "b", "c", 1.0], failed=True)])
    assert late.results == ["FAILED"]
    for when in ("setup", "call", "teardown"):
        (early,) = rows_of([report(failed=True, when=when)])
        assert (early.suite, early.results) == ("test_it[3]", ["FAILED"])
