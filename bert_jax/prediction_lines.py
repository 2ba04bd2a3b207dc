"""`bert-jax predict` and `features`: lines in, predictions or hidden states out."""

import contextlib
import functools
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bert_jax.config import ExamplesConfig
from bert_jax.convert.opening import open_model
from bert_jax.evaluation import examples_config
from bert_jax.features import features, write_features
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
        with open(source, encoding="utf-8-sig") as lines:
            yield from _line_rows(lines, source, data)


def _line_rows(lines: Iterable[str], name: str, data: ExamplesConfig) -> Iterator[Row]:
    column = data.text_columns[0] if data.text_columns else "text"
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            where = f"{name}, line {number}"
            if line.lstrip().startswith("{"):
                yield json_row(line, where)
            else:
                yield Row({column: line.rstrip("\r\n")}, where)
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
    """Write the features of each line of `source`; says how many there were."""
    model = open_model(path)
    name = "standard input" if source == "-" else source
    with contextlib.ExitStack() as stack:
        lines: Iterable[str] = sys.stdin
        if source != "-":
            lines = stack.enter_context(open(source, encoding="utf-8"))
        texts = (line.rstrip("\r\n") for line in lines)
        compute = functools.partial(
            features,
            model.config,
            model.params,
            model.tokenizer,
            layers=layers,
            combine=combine,
            batch_size=batch_size,
        )
        chunks = map(compute, iter(lambda: list(itertools.islice(texts, _AT_ONCE)), []))
        number = write_features(chunks, Path(output))
    return f"{output}: features of {number} lines of {name}."
