"""The tables of a report in a terminal."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bert_jax.reports.report import sections
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.reporting import views
from bert_jax.terminal.messages import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console

MAX_ROWS = 30
"""The rows of a table that are printed."""
MAX_CLASSES = 5
"""The classes of a matrix that is printed."""
MAX_EXAMPLES = 3
_MAX_CHARACTERS = 300


def print_report(report: JsonObject) -> None:
    """Print the tables of a report, and its worst examples, to standard error."""
    from rich.console import Console

    console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
    for section in sections(report):
        console.print(f"\n{section.title}", style="bold")
        if section.note:
            console.print(printable(section.note))
        for part in section.parts:
            if isinstance(part, views.Table) and part.is_printed:
                _print_table(console, part)
            elif isinstance(part, views.Matrix) and len(part.gold) <= MAX_CLASSES:
                columns = [views.Column("gold ↓ predicted →")]
                columns += [views.Column(name, "whole") for name in part.predicted]
                pairs = zip(part.gold, part.counts, strict=True)
                rows = [[name, *counts] for name, counts in pairs]
                _print_table(console, views.Table(part.title, columns, rows))
            elif isinstance(part, views.Examples):
                for line in _example_lines(part):
                    console.print(line, soft_wrap=True)


def _print_table(console: "Console", table: views.Table) -> None:
    """Print a table; of a long one the first rows, and the averages."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=printable(table.title), title_justify="left")
    for column in table.columns:
        title = Text(printable(column.title))
        drawn.add_column(title, justify="left" if column.format == "text" else "right")
    end = len(table.rows) - table.last_rows
    hidden = max(end - MAX_ROWS, 0)
    for i, row in enumerate(table.rows):
        if end - hidden <= i < end:
            continue
        cells = zip(row, table.columns, strict=True)
        drawn.add_row(
            *(Text(format_cell(cell, column.format)) for cell, column in cells),
            end_section=i == end - hidden - 1,
        )
    if hidden:
        drawn.caption = f"{hidden:,} more rows are in the files of the report."
    console.print(drawn)


def format_cell(cell: views.TableCell, kind: str) -> str:
    """Return a value of a table as text."""
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return one_line(cell)
    if kind == "percent":
        return f"{cell:.1%}"
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.4g}"


def _example_lines(examples: views.Examples) -> Iterable[str]:
    """Yield the lines of the worst examples: place, facts and texts."""
    for item in examples.items[:MAX_EXAMPLES]:
        facts = ", ".join(f"{name} {value}" for name, value in item.facts)
        yield printable(f"  {item.where}: {facts}")
        for passage in item.passages:
            spans = [
                f"[{s.text}]({s.label})".removesuffix("()") if s.mark else s.text
                for s in passage.spans
            ]
            text = one_line("".join(spans))
            cut = text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
            yield f"    {passage.name}: {cut}"
