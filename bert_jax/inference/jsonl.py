"""`bert-jax predict` and `features`: predictions or hidden states of lines."""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.config import ExamplesConfig
from bert_jax.config.checks import require_batch_size
from bert_jax.inference.batching import predict_examples
from bert_jax.inference.evaluation import with_embedding
from bert_jax.inference.features import SUFFIXES, Features, features, write_features
from bert_jax.inference.thresholds import apply_threshold, require_threshold
from bert_jax.pretrained import Model, load_pretrained
from bert_jax.storage.files import (
    JsonObject,
    require_not_input,
    require_output_file,
)
from bert_jax.tables.lines import (
    display_name,
    is_compressed,
    read_lines,
    require_file,
    suffix_of,
)
from bert_jax.tables.read import is_table, source_rows, table_rows, undamaged
from bert_jax.tables.rows import HALF_CHARACTER, TableRow, missing_column_message
from bert_jax.tables.write import write_rows
from bert_jax.tasks.registry import finetuning_task, task_name_of
from bert_jax.terminal.messages import say
from bert_jax.terminal.progress import Progress, tell_terminal

ID, ALL = "id", "*"
_CHUNK_LINES = 1024
"""The number of lines in memory at a time."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What to predict, and what is written of each row."""

    checkpoint: str
    source: str
    """A table, or lines of JSON or of text, which may be compressed; -: standard
    input."""
    data: ExamplesConfig
    """How rows are read, as for fine-tuning."""
    batch_size: int
    columns: tuple[str, ...] = (ID,)
    """Columns of the input that are copied; ALL: each of them."""
    threshold: float | None = None
    """As `apply_threshold`; None: the most probable class."""


def prediction_rows(request: Request) -> Iterator[list[JsonObject]]:
    """Yield chunks of predictions, in the order of the rows, after the copied columns.

    A field of the prediction whose name a copied column has, gets the prefix
    `predicted_`.

    Raises:
        ValueError: the model was never fine-tuned, a row lacks a field of its task or a
            column to copy, or the task has no threshold.
    """
    model = load_for(request)
    yield from predict_rows(request, model, undamaged(_rows(request)))


def _rows(request: Request) -> Iterator[TableRow]:
    """Return the rows of the source; a table must have one."""
    source, data = request.source, request.data
    if is_table(source):
        return table_rows(source, data.delimiter)
    return source_rows(source, text_column(data))


def text_column(data: ExamplesConfig) -> str:
    """Return the name of the column that a line of text is."""
    return data.text_columns[0] if data.text_columns else "text"


def count_rows(source: str) -> int:
    """Return the number of rows of a file, by its line ends; 0 if it is not known."""
    if (
        not Path(source).is_file()
        or is_compressed(source)
        or suffix_of(source) == ".parquet"
    ):
        return 0
    with open(source, "rb") as file:
        blocks = iter(lambda: file.read(1 << 20), b"")
        num_lines = sum(block.count(b"\n") for block in blocks)
    return max(num_lines - 1, 0) if is_table(source) else num_lines  # the header


def load_for(request: Request) -> Model:
    """Load the model; raise ValueError as `prediction_rows` if it cannot predict."""
    require_batch_size(request.batch_size)
    model = load_pretrained(request.checkpoint).placed()
    task_name_of(model.config, with_embedding(request.data, model))
    if request.threshold is not None:
        require_threshold(model.config, request.threshold)
    return model


def predict_rows(
    request: Request, model: Model, rows: Iterator[TableRow]
) -> Iterator[list[JsonObject]]:
    """Yield chunks of predictions of rows, as `prediction_rows`."""
    data = with_embedding(request.data, model)
    task = finetuning_task(task_name_of(model.config, data), data, model.config)
    while chunk := list(itertools.islice(rows, _CHUNK_LINES)):
        copied = [_copied(row, request.columns) for row in chunk]
        examples = [task.example_without_label(row) for row in chunk]
        predictions = predict_examples(
            task, model.params, model.tokenizer, examples, request.batch_size
        )
        if request.threshold is not None:
            predictions = [apply_threshold(p, request.threshold) for p in predictions]
        yield [
            values | _renamed(round_floats(prediction), values)
            for values, prediction in zip(copied, predictions, strict=True)
        ]


def prediction_lines(request: Request) -> Iterator[str]:
    """Yield a line of JSON for each row, as `prediction_rows`.

    A terminal that does not show the lines shows how far it is.
    """
    for rows in _with_progress(request, tell_terminal):
        for row in rows:
            yield json.dumps(row, ensure_ascii=False)


def _with_progress(
    request: Request, tell: Callable[[str], None]
) -> Iterator[list[JsonObject]]:
    """Yield as `prediction_rows`; lines on the way tell how far it is."""
    progress = Progress("rows", count_rows(request.source), tell)
    for rows in prediction_rows(request):
        yield rows
        progress.advance(len(rows))


def write_predictions(request: Request, output: str) -> str:
    """Write predictions to a file, as `write_rows`; return a message with their number.

    Lines on the way say how far it is.
    """
    require_not_input(output, request.source)
    num_rows = write_rows(_with_progress(request, say), Path(output))
    return f"{output}: {num_rows:,} predictions of {display_name(request.source)}."


def _copied(row: TableRow, columns: tuple[str, ...]) -> JsonObject:
    """Return the columns of a row to copy; an `id` only where there is one."""
    names = list(row.values) if columns == (ALL,) else list(columns)
    if columns == (ID,) and ID not in row.values:
        return {}
    for name in names:
        if name not in row.values:
            raise ValueError(missing_column_message(row.where, name, row.values))
        try:
            written = json.dumps([name, row.values[name]], ensure_ascii=False)
        except TypeError as error:  # a time or bytes, in Parquet
            kind = type(row.values[name]).__name__
            raise ValueError(
                f"{row.where}: {name} holds a value of type {kind}, which cannot be "
                "written; leave it out of --columns."
            ) from error
        if HALF_CHARACTER.search(written):
            raise ValueError(
                f"{row.where}: {name} holds half of a surrogate pair, which cannot be "
                "written; correct it."
            )
    return {name: null_for_nan(row.values[name]) for name in names}


def null_for_nan(value: Any) -> Any:
    """Return a JSON value with None in the place of numbers that JSON does not have.

    Those are NaN and the infinities, which .parquet files have.
    """
    if isinstance(value, dict):
        return {name: null_for_nan(item) for name, item in value.items()}
    if isinstance(value, list):
        return [null_for_nan(item) for item in value]
    is_number = not isinstance(value, float) or math.isfinite(value)
    return value if is_number else None


def _renamed(prediction: JsonObject, taken: JsonObject) -> JsonObject:
    """Return a prediction whose fields have other names than the copied columns.

    That of a question has its `id`, too.
    """
    renamed = {}
    for name, value in prediction.items():
        if name == ID and ID in taken:
            continue
        while name in taken or name in renamed:
            name = f"predicted_{name}"
        renamed[name] = value
    return renamed


def round_floats(value: object) -> Any:
    """Round the floats of a JSON value to nine digits, which determine a float32."""
    if isinstance(value, dict):
        return {name: round_floats(item) for name, item in value.items()}
    if isinstance(value, list):
        return [round_floats(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


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
    require_not_input(output, source)
    model, name = load_pretrained(path).placed(), display_name(source)
    if source != "-":
        require_file(source, "name one, or - for standard input.")
    read, longest = (model.config, model.params, model.tokenizer), model.trained_length
    what = f"{name}, line"

    def chunks() -> Iterator[list[Features]]:
        progress = Progress("lines", count_rows(source))
        lines, first = read_lines(source), 1
        while chunk := list(itertools.islice(lines, _CHUNK_LINES)):
            yield features(
                *(*read, chunk, layers, combine, batch_size),
                what=what,
                first=first,
                trained_length=longest,
            )
            first += len(chunk)
            progress.advance(len(chunk))

    num_lines = write_features(chunks(), Path(output))
    return f"{output}: features of {num_lines} lines of {name}."
