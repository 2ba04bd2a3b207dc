"""`bert-jax predict` and `features`: predictions or hidden states of lines."""

import contextlib
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from bert_jax.config import ExamplesConfig
from bert_jax.config.checks import require_batch_size
from bert_jax.inference.batching import predict_examples
from bert_jax.inference.features import SUFFIXES, Features, features, write_features
from bert_jax.pretrained import load_pretrained
from bert_jax.storage.files import JsonObject, require_output_file
from bert_jax.tasks.registry import finetuning_task, task_name_of
from bert_jax.tasks.tables import (
    HALF_CHARACTER,
    TABLES,
    TableRow,
    decode,
    json_row,
    read_table,
    require_file,
)

_CHUNK_LINES = 1024
"""The number of lines in memory at a time."""
_MAX_LINE_BYTES = 1 << 24
"""A limit, because a file without line ends would fill the memory."""


def prediction_lines(
    checkpoint: str, source: str, data: ExamplesConfig, batch_size: int
) -> Iterator[str]:
    """Yield a line of JSON for each row of `source`, in order, with the row's `id`.

    Rows are read by `data`, as for fine-tuning. Raise ValueError if the model was never
    fine-tuned, or a row lacks a field of its task.
    """
    require_batch_size(batch_size)
    model = load_pretrained(checkpoint)
    task = finetuning_task(task_name_of(model.config), data, model.config)
    rows = read_rows(source, data)
    while chunk := list(itertools.islice(rows, _CHUNK_LINES)):
        ids = [_id_of(row) for row in chunk]
        examples = [task.example_without_label(row) for row in chunk]
        predictions = predict_examples(
            task, model.params, model.tokenizer, examples, batch_size
        )
        for row_id, prediction in zip(ids, predictions, strict=True):
            yield json.dumps(row_id | round_floats(prediction), ensure_ascii=False)


def _id_of(row: TableRow) -> JsonObject:
    """Return the `id` of a row for its prediction, or {}."""
    if "id" not in row.values:
        return {}
    if HALF_CHARACTER.search(json.dumps(row.values["id"], ensure_ascii=False)):
        raise ValueError(
            f"{row.where}: id holds half of a surrogate pair, which cannot be written; "
            "correct it."
        )
    return {"id": row.values["id"]}


def round_floats(value: object) -> Any:
    """Round the floats of a JSON value to nine digits, which determine a float32."""
    if isinstance(value, dict):
        return {name: round_floats(item) for name, item in value.items()}
    if isinstance(value, list):
        return [round_floats(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def read_rows(source: str, data: ExamplesConfig) -> Iterator[TableRow]:
    """Yield the rows of a table, or of lines of JSON or of text."""
    if Path(source).suffix in TABLES:
        yield from read_table(source)
    else:
        column = data.text_columns[0] if data.text_columns else "text"
        name = display_name(source)
        for line_number, line in enumerate(read_lines(source), 1):
            where = f"{name}, line {line_number}"
            if line.lstrip().startswith("{"):
                yield json_row(line, where)
            else:
                yield TableRow({column: line}, where)


def display_name(source: str) -> str:
    """Return the name of a file for messages."""
    return "standard input" if source == "-" else source


def read_lines(source: str) -> Iterator[str]:
    """Yield the lines of a file, or of standard input, without their ends.

    Raise FileNotFoundError if there is no such file, and ValueError if it is not UTF-8,
    or a line is longer than `_MAX_LINE_BYTES` bytes.
    """
    name, line_number, offset = display_name(source), 0, 0
    with contextlib.ExitStack() as stack:
        if source != "-":
            require_file(source, "name one, or - for standard input.")
            stream: BinaryIO = stack.enter_context(open(source, "rb"))
        elif sys.stdin is None:
            raise ValueError("standard input is closed; name a file by --input.")
        else:
            stream = sys.stdin.buffer
        while line := stream.readline(_MAX_LINE_BYTES + 1):
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


def write_feature_file(
    path: str,
    source: str,
    output: str,
    layers: Sequence[int],
    combine: str,
    batch_size: int,
) -> str:
    """Write features of each line of `source`; return a message with their number."""
    require_output_file(Path(output), *SUFFIXES)
    model, name = load_pretrained(path), display_name(source)
    if source != "-":
        require_file(source, "name one, or - for standard input.")
    read, longest = (model.config, model.params, model.tokenizer), model.trained_length
    what = f"{name}, line"

    def chunks() -> Iterator[list[Features]]:
        lines, first = read_lines(source), 1
        while chunk := list(itertools.islice(lines, _CHUNK_LINES)):
            yield features(
                *(*read, chunk, layers, combine, batch_size),
                what=what,
                first=first,
                trained_length=longest,
            )
            first += len(chunk)

    num_lines = write_features(chunks(), Path(output))
    return f"{output}: features of {num_lines} lines of {name}."
