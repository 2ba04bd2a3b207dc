"""Rows from lines of JSON or of text, of a file or of standard input."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from bert_jax.config import ExamplesConfig
from bert_jax.tasks.tables import (
    TableRow,
    decode,
    is_table,
    iterate_table,
    json_row,
    require_file,
)

_MAX_LINE_BYTES = 1 << 24
"""A limit, because a file without line ends would fill the memory."""


def read_rows(source: str, data: ExamplesConfig) -> Iterator[TableRow]:
    """Yield the rows of a table, or of lines of JSON or of text."""
    if is_table(source):
        yield from iterate_table(source)
        return
    name, column = display_name(source), text_column(data)
    for number, line in enumerate(read_lines(source), 1):
        yield text_row(line, f"{name}, line {number}", column)


def text_column(data: ExamplesConfig) -> str:
    """Return the name of the column that a line of text is."""
    return data.text_columns[0] if data.text_columns else "text"


def text_row(line: str, where: str, column: str) -> TableRow:
    """Return the row of a line: an object of JSON, or a text."""
    if line.lstrip().startswith("{"):
        return json_row(line, where)
    return TableRow({column: line}, where)


def display_name(source: str) -> str:
    """Return the name of a file for messages."""
    return "standard input" if source == "-" else source


def count_rows(source: str) -> int:
    """Return the number of rows of a file, by its line ends; 0 for standard input."""
    if source == "-" or not Path(source).is_file():
        return 0
    with open(source, "rb") as file:
        blocks = iter(lambda: file.read(1 << 20), b"")
        num_lines = sum(block.count(b"\n") for block in blocks)
    return max(num_lines - 1, 0) if is_table(source) else num_lines  # the header


def read_lines(source: str) -> Iterator[str]:
    """Yield the lines of a file, or of standard input, without their ends.

    Raise FileNotFoundError if there is no such file, and ValueError if it is not UTF-8,
    or a line is longer than `_MAX_LINE_BYTES` bytes.
    """
    with contextlib.ExitStack() as stack:
        if source != "-":
            require_file(source, "name one, or - for standard input.")
            stream: BinaryIO = stack.enter_context(open(source, "rb"))
        elif sys.stdin is None:
            raise ValueError("standard input is closed; name a file by --input.")
        else:
            stream = sys.stdin.buffer
        yield from lines_of(stream.readline, display_name(source))


def lines_of(read_line: Callable[[int], bytes], name: str) -> Iterator[str]:
    """Yield lines as `read_lines`; messages call the file `name`.

    Args:
        read_line: reads a line of at most so many bytes; `readline` of a file.
    """
    line_number, offset = 0, 0
    while line := read_line(_MAX_LINE_BYTES + 1):
        where = f"{name}, line {line_number + 1}"
        if len(line) > _MAX_LINE_BYTES:
            raise ValueError(
                f"{where} has more than {_MAX_LINE_BYTES:,} bytes; write one text "
                "per line, each shorter than that."
            )
        text = decode(line, where, offset)
        text = text if offset else text.removeprefix("\ufeff")
        offset += len(line)
        # Some files end lines by a carriage return alone.
        for text_line in text.removesuffix("\n").removesuffix("\r").split("\r"):
            line_number += 1
            yield text_line
