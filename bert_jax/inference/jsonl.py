"""`bert-jax predict` and `features`: lines in, predictions or hidden states out."""

import contextlib
import functools
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from bert_jax.config import ExamplesConfig
from bert_jax.config.checks import require_batch_size
from bert_jax.inference.features import Features, check_output, features, write_features
from bert_jax.inference.predictions import predictions_for, task_of
from bert_jax.pretrained import load_pretrained
from bert_jax.tasks.problems import problem_of
from bert_jax.tasks.tables import (
    HALF_CHARACTER,
    TABLES,
    Row,
    decode,
    json_row,
    read_table,
    require_file,
)

_AT_ONCE = 1024
"""Lines that are read before any is answered; what is in memory at a time."""
_LONGEST_LINE = 1 << 24
"""In bytes: what has no line ends must not fill the memory."""


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
    model = load_pretrained(checkpoint)
    problem = problem_of(task_of(model.config))
    rows = rows_of(source, data)
    while chunk := list(itertools.islice(rows, _AT_ONCE)):
        ids = [_id_of(row) for row in chunk]
        records = [problem.record(row, data) for row in chunk]
        found = predictions_for(
            model.config, model.params, model.tokenizer, records, data, batch_size
        )
        for named, prediction in zip(ids, found, strict=True):
            yield json.dumps(named | shortened(prediction), ensure_ascii=False)


def _id_of(row: Row) -> dict[str, Any]:
    """The `id` of a row, if it has one, as its prediction will have it."""
    if "id" not in row.values:
        return {}
    if HALF_CHARACTER.search(json.dumps(row.values["id"], ensure_ascii=False)):
        raise ValueError(
            f"{row.where}: id holds half of a surrogate pair, which no output can hold;"
            " mend it."
        )
    return {"id": row.values["id"]}


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
        FileNotFoundError: it is no file.
        ValueError: it is not UTF-8, or a line is longer than `_LONGEST_LINE` bytes.
    """
    name, number, at = name_of(source), 0, 0
    with contextlib.ExitStack() as stack:
        if source != "-":
            require_file(source, "name one, or - for standard input.")
            stream: BinaryIO = stack.enter_context(open(source, "rb"))
        elif sys.stdin is None:
            raise ValueError("standard input is closed; name a file by --input.")
        else:
            stream = sys.stdin.buffer
        while line := stream.readline(_LONGEST_LINE + 1):
            where = f"{name}, line {number + 1}"
            if len(line) > _LONGEST_LINE:
                raise ValueError(
                    f"{where} has more than {_LONGEST_LINE:,} bytes; write a text a "
                    "line, each shorter than that."
                )
            text = decode(line, where, at)
            text = text if at else text.removeprefix("\ufeff")
            at += len(line)
            # A line of files as old Macs wrote them ends at a carriage return alone.
            for part in text.removesuffix("\n").removesuffix("\r").split("\r"):
                number += 1
                yield part


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
    model, name = load_pretrained(path), name_of(source)
    if source != "-":
        require_file(source, "name one, or - for standard input.")
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
