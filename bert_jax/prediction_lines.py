"""`bert-jax predict`: lines of a file or of standard input to lines of JSON."""

import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from bert_jax.config import ExamplesConfig
from bert_jax.convert.opening import open_model
from bert_jax.evaluation import examples_config
from bert_jax.inference import predictions_for, task_of
from bert_jax.tasks.problems import problem_of
from bert_jax.tasks.tables import TABLES, Row, json_row, read_table

_AT_ONCE = 1024
"""Lines that are read before any is answered; what is in memory at a time."""


def prediction_lines(checkpoint: str, source: str, batch_size: int) -> Iterator[str]:
    """A line of JSON for each row of `source`, in order; its `id`, if it has one, too.

    Raises:
        ValueError: the model was never fine-tuned, or a row lacks what its task needs.
    """
    model = open_model(checkpoint)
    problem, data = problem_of(task_of(model.config)), examples_config(model.directory)
    rows = rows_of(source, data)
    while chunk := list(itertools.islice(rows, _AT_ONCE)):
        records = [problem.record(row, data) for row in chunk]
        found = predictions_for(
            model.config, model.params, model.tokenizer, records, data, batch_size
        )
        for row, prediction in zip(chunk, found, strict=True):
            named = {"id": row.values["id"]} if "id" in row.values else {}
            yield json.dumps(named | prediction, ensure_ascii=False)


def rows_of(source: str, data: ExamplesConfig) -> Iterator[Row]:
    """The rows of a table, or of lines of JSON or of text."""
    if source == "-":
        yield from _line_rows(sys.stdin, "standard input", data)
    elif Path(source).suffix in TABLES:
        yield from read_table(source)
    else:
        with open(source, encoding="utf-8") as lines:
            yield from _line_rows(lines, source, data)


def _line_rows(lines: Iterable[str], name: str, data: ExamplesConfig) -> Iterator[Row]:
    column = data.text_columns[0] if data.text_columns else "text"
    for number, line in enumerate(lines, 1):
        where = f"{name}, line {number}"
        if line.lstrip().startswith("{"):
            yield json_row(line, where)
        else:
            yield Row({column: line.rstrip("\r\n")}, where)
