"""Rows that cannot be used: counted, the first one named; refused, or left out."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from bert_jax.tables.rows import TableRow
from bert_jax.terminal.messages import warn

T = TypeVar("T")


class RowErrors:
    """Counts the rows of a file, and those that cannot be used.

    `first` says why the first of those cannot, with its file and line; "": all can.
    """

    def __init__(self, name: str, noun: str = "rows") -> None:
        """Take the name of the file, and what messages call its rows."""
        self._name, self._noun = name, noun
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
            self.add(str(error))
            return None

    def add(self, problem: str) -> None:
        """Count a row that cannot be used."""
        self.num_damaged += 1
        self.first = self.first or problem

    def settle(self, skip_damaged: bool, outcome: str, option: str) -> None:
        """Refuse the rows that cannot be used, or warn of their `outcome` by `option`.

        Raise ValueError if rows cannot be used and are not to be left out, or all
        cannot.
        """
        if not self.first:
            return
        number = (
            f"{self.num_damaged:,} of {self.num_rows:,} {self._noun} cannot be used"
        )
        if self.num_damaged == self.num_rows:
            raise ValueError(self.first + f" So {number}." * (self.num_rows > 1))
        if not skip_damaged:
            remedy = f"correct them, or leave them out by {option}"
            raise ValueError(f"{self.first} So {number}; {remedy}.")
        warn(f"{self._name}: {number}, and {outcome}; the first: {self.first}")


def parse_rows(
    name: str,
    rows: Iterable[TableRow],
    parse: Callable[[TableRow], T],
    skip_damaged: bool,
    noun: str = "rows",
    has_label: Callable[[T], bool] = lambda _: True,
) -> list[T]:
    """Return what `parse` makes of the rows of a file that is learned from or scored.

    With `skip_damaged`, rows are left out that cannot be used, with a warning, and
    beside rows that have a label those without, too. Messages call the rows `noun`.
    Raise ValueError if rows cannot be used, and are not to be left out, or all cannot.
    """
    errors = RowErrors(name, noun)
    parsed = [(row.where, errors.parse(row, parse)) for row in rows]
    values = [value for _, value in parsed if value is not None]
    if skip_damaged and any(map(has_label, values)):
        for where, value in parsed:
            if value is not None and not has_label(value):
                errors.add(f"{where} has no label.")
        values = list(filter(has_label, values))
    errors.settle(skip_damaged, "are left out", "--data.skip-damaged")
    return values
