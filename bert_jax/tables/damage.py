"""Rows that cannot be used: counted, the first one named; refused, or left out."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from bert_jax.tables.rows import TableRow
from bert_jax.terminal.messages import warn

T = TypeVar("T")


class RowErrors:
    """Counts the rows of a file, and those that cannot be used.

    Attributes:
        num_rows: how many rows were parsed.
        num_damaged: how many of them cannot be used.
        first: why the first of those cannot, with its file and line; "": all can.
    """

    def __init__(self, name: str) -> None:
        """Take the name of the file."""
        self._name = name
        self.num_rows = self.num_damaged = 0
        self.first = ""

    def parse(self, row: TableRow, parse: Callable[[TableRow], T]) -> T | None:
        """Return what `parse` makes of a row; None if that raises ValueError."""
        self.num_rows += 1
        try:
            if row.problem:
                raise ValueError(row.problem)
            return parse(row)
        except ValueError as error:
            self.num_damaged += 1
            self.first = self.first or str(error)
            return None

    def refuse(self, option: str) -> None:
        """Raise ValueError if a row cannot be used.

        Args:
            option: leaves such rows out.
        """
        if not self.first:
            return
        if self.num_rows == 1:
            raise ValueError(self.first)
        number = f"{self.num_damaged:,} of {self.num_rows:,} rows cannot be used"
        if self.num_damaged == self.num_rows:
            raise ValueError(f"{self.first} So {number}.")
        raise ValueError(
            f"{self.first} So {number}; correct them, or leave them out by {option}."
        )

    def report(self, outcome: str) -> None:
        """Warn of the rows that cannot be used; raise ValueError if all cannot."""
        if not self.first:
            return
        if self.num_damaged == self.num_rows:
            self.refuse("")
        warn(
            f"{self._name}: {self.num_damaged:,} of {self.num_rows:,} rows cannot be "
            f"used, and {outcome}; the first: {self.first}"
        )


def parse_rows(
    name: str,
    rows: Iterable[TableRow],
    parse: Callable[[TableRow], T],
    skip_damaged: bool,
) -> list[T]:
    """Return what `parse` makes of the rows of a file that is learned from or scored.

    Args:
        skip_damaged: leave rows out that cannot be used, with a warning.

    Raises:
        ValueError: rows cannot be used, and are not to be left out, or all cannot.
    """
    errors = RowErrors(name)
    parsed = [errors.parse(row, parse) for row in rows]
    if skip_damaged:
        errors.report("are left out")
    else:
        errors.refuse("--data.skip-damaged")
    return [value for value in parsed if value is not None]
