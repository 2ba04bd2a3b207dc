"""Rows in memory, which are read like a file of JSON lines."""

import decimal
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bert_jax.tables.rows import TableRow

RowsInMemory = object
"""The name of a file; or a list of dicts, or a table of pandas, polars, pyarrow or
datasets: none of these libraries is imported, and so the class is open."""
IN_MEMORY = " (in memory)"
"""Ends the name of rows, which is all that a workdir has of them."""
_MISSING = ("NAType", "NaTType")
"""The classes of what pandas writes where a value is missing, besides NaN."""


class MemoryTable(str):
    """The name of rows in memory: it stands where the name of a file does.

    Messages have "NAME (in memory), row N" in place of the file and line, and
    configurations on disk the name alone.
    """

    _records: tuple[object, ...]

    def __new__(cls, rows: RowsInMemory, name: str = "rows") -> "MemoryTable":
        """Take the rows, unread; raise ValueError if it is no table."""
        table = super().__new__(cls, name + IN_MEMORY)
        table._records = tuple(_records(rows, name))
        return table

    def __deepcopy__(self, memo: object) -> "MemoryTable":
        return self

    def rows(self) -> Iterator[TableRow]:
        """Yield the rows, also those that are damaged."""
        for number, record in enumerate(self._records, 1):
            yield row_of(record, f"{self}, row {number}")


def _records(table: Any, name: str) -> Iterable[object]:
    if hasattr(table, "to_dicts"):  # of polars
        return table.to_dicts()
    if hasattr(table, "to_pylist"):  # of pyarrow
        return table.to_pylist()
    if hasattr(table, "to_dict") and hasattr(table, "columns"):  # of pandas
        if len(set(table.columns)) < len(table.columns):
            raise ValueError(
                f"{name}: the table has two columns of one name; rename one of them."
            )
        return table.to_dict("records")
    if isinstance(table, Mapping | bytes) or not isinstance(table, Iterable):
        raise ValueError(
            f"{name} is of type {type(table).__name__}; it must be the name of a file, "
            "a list with a dict for each row, or a table of pandas, polars, pyarrow or "
            "datasets."
        )
    return table


def row_of(record: object, where: str) -> TableRow:
    """Return the row of a record, with values as JSON has them."""
    if not isinstance(record, Mapping):
        rule = "it must be a dict with a value for each column."
        problem = f"{where} is of type {type(record).__name__}; {rule}"
        return TableRow({}, where, problem)
    for name in record:
        if not isinstance(name, str):
            rule = "its name must be a string."
            return TableRow({}, where, f"{where} has a column {name!r:.40}; {rule}")
    return TableRow({name: plain(value) for name, value in record.items()}, where)


def plain(value: Any) -> Any:
    """Return a value as JSON has it: NumPy's as Python's, and tuples as lists.

    For what pandas writes where a value is missing, it is None, and for a decimal its
    digits.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return list(map(plain, value))
    is_nan = isinstance(value, float) and math.isnan(value)
    return None if is_nan or type(value).__name__ in _MISSING else value


def named_source(source: RowsInMemory, name: str) -> str:
    """Return the name of a file as it is, and rows as a table of that name."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return MemoryTable(source, name)
