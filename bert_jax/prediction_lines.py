"""`bert-jax predict` and `features`: lines in, predictions or hidden states out."""

import contextlib
import functools
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.checks import require_batch_size
from bert_jax.config import ExamplesConfig
from bert_jax.convert.opening import open_model
from bert_jax.features import Features, check_output, features, write_features
from bert_jax.inference import predictions_for, task_of
from bert_jax.tasks.problems import problem_of
from bert_jax.tasks.tables import TABLES, Row, json_row, read_table

_AT_ONCE = 1024
"""Lines that are read before any is answered; what is in memory at a time."""


def prediction_lines(
    checkpoint: str, source: str, data: ExamplesConfig, batch_size: int
) -> Iterator[str]:
    """A line of JSON for each row of `source`, in order; its `id`, if it has one, too.

    Args:
        data: how rows are read, as the model was fine-tuned with.

    Raises:
        ValueError: the model was never fine-tuned, or a row lacks what its task needs.
    """
    require_batch_size(batch_size)
    model = open_model(checkpoint)
    problem = problem_of(task_of(model.config))
    rows = rows_of(source, data)
    while chunk := list(itertools.islice(rows, _AT_ONCE)):
        records = [problem.record(row, data) for row in chunk]
        found = predictions_for(
            model.config, model.params, model.tokenizer, records, data, batch_size
        )
        for row, prediction in zip(chunk, found, strict=True):
            named = {"id": row.values["id"]} if "id" in row.values else {}
            yield json.dumps(named | shortened(prediction), ensure_ascii=False)


def shortened(value: Any) -> Any:
    """A JSON value with its floats to nine digits, which tell all float32 apart."""
    if isinstance(value, dict):
        return {name: shortened(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shortened(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def rows_of(source: str, data: ExamplesConfig) -> Iterator[Row]:
    """The rows of a table, or of lines of JSON or of text."""
    if Path(source).suffix in TABLES:
        yield from read_table(source)
    else:
        column = data.text_columns[0] if data.text_columns else "text"
        name = name_of(source)
        for number, line in enumerate(lines_of(source), 1):
            where = f"{name}, line {number}"
            if line.lstrip().startswith("{"):
                yield json_row(line, where)
            else:
                yield Row({column: line}, where)


def name_of(source: str) -> str:
    """What a user calls a file to read."""
    return "standard input" if source == "-" else source


def lines_of(source: str) -> Iterator[str]:
    """The lines of a file, or of standard input, without their ends.

    Raises:
        ValueError: it is not UTF-8.
    """
    number, name = 0, name_of(source)
    try:
        with contextlib.ExitStack() as stack:
            lines: Iterable[str] = sys.stdin
            if source != "-":
                lines = stack.enter_context(open(source, encoding="utf-8-sig"))
            for line in lines:
                number += 1
                yield line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name}, after line {number}: a byte is not UTF-8; convert the file."
        ) from error


def feature_file(
    path: str,
    source: str,
    output: str,
    layers: Sequence[int],
    combine: str,
    batch_size: int,
) -> str:
    """Write the features of each line of `source`; says how many there were.

    Raises:
        ValueError: a line is too long, there is none, or there is no such layer.
    """
    check_output(Path(output))
    model, name = open_model(path), name_of(source)
    compute = functools.partial(
        features,
        model.config,
        model.params,
        model.tokenizer,
        layers=layers,
        combine=combine,
        batch_size=batch_size,
    )

    def chunks() -> Iterator[list[Features]]:
        lines, first = lines_of(source), 1
        while chunk := list(itertools.islice(lines, _AT_ONCE)):
            yield compute(chunk, what=f"{name}, line", first=first)
            first += len(chunk)

    number = write_features(chunks(), Path(output))
    return f"{output}: features of {number} lines of {name}."
