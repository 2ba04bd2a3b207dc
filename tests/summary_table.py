"""The table at the end of `make reliability`: what each suite did, and its bar.

A row travels from the process that ran the test in the report's `user_properties`.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

PROPERTY = "reliability_row"
HEADINGS = ("suite", "count", "bar", "result", "seconds")


@dataclasses.dataclass
class Row:
    """One line; those of tests that share a suite and a bar are added up."""

    suite: str
    count: int
    bar: str
    results: list[str]
    seconds: float

    def cells(self) -> tuple[str, ...]:
        """Its columns as they are printed."""
        result = "; ".join(dict.fromkeys(self.results))
        return self.suite, f"{self.count:,}", self.bar, result, f"{self.seconds:.0f}"


def rows_of(reports: Iterable[Any]) -> list[Row]:
    """The rows of all reports; a test that failed without any gets one."""
    rows: dict[tuple[str, str], Row] = {}
    for report in reports:
        found = [value for name, value in report.user_properties if name == PROPERTY]
        if report.failed and (report.when != "call" or not found):
            found = [[report.nodeid.partition("::")[2], 0, "", "", report.duration]]
        for suite, count, bar, result, seconds in found:
            row = rows.setdefault((suite, bar), Row(suite, 0, bar, [], 0.0))
            row.count += count
            row.results.append("FAILED" if report.failed else result)
            row.seconds += seconds
    return list(rows.values())


def lines(rows: Iterable[Row]) -> list[str]:
    """The table, a line a row, in columns."""
    table = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) for cell, width in zip(cells, widths, strict=True)
        ).rstrip()
        for cells in table
    ]
