"""Predictions of the rows of a file: which can be used, and what is written of each."""

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bert_jax.config import ExamplesConfig
from bert_jax.config.checks import require_batch_size
from bert_jax.inference.batching import Unread, example_outputs
from bert_jax.inference.evaluation import settings_for
from bert_jax.inference.thresholds import (
    apply_threshold,
    most_probable,
    require_threshold,
    require_top_k,
)
from bert_jax.pretrained import load_pretrained
from bert_jax.storage.files import JsonObject, finite_json
from bert_jax.tables.damage import RowErrors
from bert_jax.tables.lines import STDIN, chunks, display_name
from bert_jax.tables.read import is_table
from bert_jax.tables.rows import HALF_CHARACTER, TableRow, missing_column_message
from bert_jax.tables.write import require_one_table
from bert_jax.tasks.answers.spans import require_null_answers
from bert_jax.tasks.kinds import finetuning_task, task_name_of
from bert_jax.tasks.predictions import Example, Prediction
from bert_jax.tasks.texts.examples import (
    TextExample,
    require_num_texts,
    require_same_number,
    significant_digits,
)
from bert_jax.terminal.progress import Progress

ID, ALL = "id", "*"
SKIP_DAMAGED = "--skip-damaged"
NULL = "have null for a prediction"
_CHUNK_ROWS, _CHUNK_NUMBERS = 1024, 1 << 20
"""The most rows, and probabilities of their classes, in memory at a time."""


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
    top_k: int = 0
    """As `most_probable`; 0: all classes."""
    skip_damaged: bool = False
    """Whether a row that cannot be used has null for a prediction, or is refused."""


class RowPredictor:
    """A fine-tuned model, placed on the device, and what a request wants of it."""

    def __init__(self, request: Request) -> None:
        """Load the model; ValueError if not fine-tuned, or a setting does not fit."""
        require_batch_size(request.batch_size)
        self.request = request
        self.model = load_pretrained(request.checkpoint).placed()
        data = settings_for(request.data, self.model)
        name = task_name_of(self.model.config, data)
        self.task = finetuning_task(name, data, self.model.config)
        if self.model.imported and data.null_threshold:
            given = f"data.null_threshold={data.null_threshold:g}"
            require_null_answers(self.model.config, given)
        if request.threshold is not None:
            require_threshold(self.model.config, request.threshold)
        require_top_k(self.model.config, request.top_k)

    def check(self, source: str, kind: str = ".jsonl") -> int:
        """Return the number of rows of a file, before any is computed.

        Raise ValueError if rows cannot be used and may not be left out, or all cannot;
        or what is copied of them does not fit into one table.
        """
        errors, skip = RowErrors(source), self.request.skip_damaged
        entries = map(self._reader(errors), self.task.rows_to_predict(source))
        require_one_table((e[0] for e in entries if skip or e[1] is not None), kind)
        errors.settle(skip, NULL, SKIP_DAMAGED)
        return errors.num_rows

    def predict(self, source: str, errors: RowErrors) -> Iterator[list[JsonObject]]:
        """Yield chunks of predictions, in the order of the rows, after copied columns.

        A field of the prediction whose name a copied column has, gets the prefix
        `predicted_`. A damaged row has null in each field, if it may be left out;
        raise ValueError if it may not, or all rows are damaged. `errors` counts them.
        """
        entries: list[tuple[JsonObject, Example | None]] = []
        nothing: Prediction | None = None
        read = self._reader(errors)
        unread = Unread(self.task, self.model.tokenizer)
        # What is told of the file, `check` has told.
        rows = self.task.rows_to_predict(source, notify=lambda _: None)
        most = _CHUNK_NUMBERS // max(1, len(self.model.config.labels))
        for chunk in chunks(source, rows, max(1, min(_CHUNK_ROWS, most))):
            entries += map(read, chunk)
            if errors.first and not self.request.skip_damaged:
                is_named = "--" in errors.first or "`bert-jax" in errors.first
                hint = "" if is_named else f" {SKIP_DAMAGED} leaves such rows out."
                raise ValueError(errors.first + hint)
            examples = [example for _, example in entries if example is not None]
            made = self._predictions(examples, unread)
            if nothing is None:
                if not made:
                    continue  # the fields of a prediction are not known yet
                nothing = {
                    field: dict.fromkeys(value) if isinstance(value, dict) else None
                    for field, value in made[0].items()
                }
            predictions = iter(made)
            yield [
                values
                | _renamed(nothing if example is None else next(predictions), values)
                for values, example in entries
            ]
            entries = []
        if source == STDIN or entries:
            errors.settle(True, NULL, SKIP_DAMAGED)
        unread.warn(display_name(source))

    def _predictions(
        self, examples: Sequence[Example], unread: Unread
    ) -> list[Prediction]:
        """Return a prediction for each example; count what of them is not read."""
        if not examples:
            return []
        model, request = self.model, self.request
        outputs = example_outputs(self.task, model, examples, request.batch_size)
        unread.add(outputs.split)
        predictions = self.task.predict(outputs)
        if request.threshold is not None:
            predictions = [apply_threshold(p, request.threshold) for p in predictions]
        predictions = most_probable(model.config, predictions, request.top_k)
        c = model.config
        unit = c.target_deviation if c.target_mean else math.inf
        return [_rounded(one, unit) for one in predictions]

    def _reader(
        self, errors: RowErrors
    ) -> Callable[[TableRow], tuple[JsonObject, Example | None]]:
        """Return a function: row → copied columns, and example; None: it is damaged.

        A text after pairs of texts, or a pair after texts, is damaged, too.
        """
        first: list[TextExample] = []

        def parse(row: TableRow) -> tuple[JsonObject, Example]:
            copied = {n: _copied(row, n) for n in _names(row, self.request.columns)}
            example = self.task.example_without_label(row)
            if isinstance(example, TextExample):
                first.extend([] if first else [example])
                require_same_number(example, first[0])
                require_num_texts(example, self.task.data.num_texts)
            return copied, example

        def read(row: TableRow) -> tuple[JsonObject, Example | None]:
            if (entry := errors.parse(row, parse)) is not None:
                return entry
            copied: JsonObject = dict.fromkeys(_names(row, self.request.columns))
            for name in copied:
                with contextlib.suppress(ValueError):
                    copied[name] = _copied(row, name)
            return copied, None

        return read


def prediction_rows(
    request: Request, tell: Callable[[str], None], kind: str = ".jsonl"
) -> Iterator[list[JsonObject]]:
    """Yield chunks of predictions for the rows of a request's source.

    A file is checked before anything is computed. The lines of standard input are not,
    since they may come one by one. `tell` takes lines that say how far it is; `kind` is
    the suffix of the output. Raise ValueError if the model is not fine-tuned, a row
    cannot be used and may not be left out, or none can be used.
    """
    predictor, source = RowPredictor(request), request.source
    errors, num_rows = RowErrors(display_name(source)), 0
    if source != STDIN:
        num_rows = predictor.check(source, kind)
        if is_table(source) and not num_rows:
            raise ValueError(f"{source} has no rows; it must have at least one.")
    progress = Progress("rows", num_rows, tell)
    for chunk in predictor.predict(source, errors):
        yield chunk
        progress.advance(len(chunk))


def _names(row: TableRow, columns: tuple[str, ...]) -> list[str]:
    """Return the columns of a row to copy; an `id` only where there is one."""
    if columns == (ID,) and ID not in row.values:
        return []
    return list(row.values) if columns == (ALL,) else list(columns)


def _copied(row: TableRow, name: str) -> Any:
    """Return a value as it is copied; raise ValueError if it cannot be written."""
    if name not in row.values:
        raise ValueError(missing_column_message(row.where, name, row.values))
    value = row.values[name]
    try:
        written = json.dumps([name, value], ensure_ascii=False)
    except TypeError as error:  # a time or bytes, in Parquet
        raise ValueError(
            f"{row.where}: {name} holds a value of type {type(value).__name__}, which "
            "cannot be written; leave it out of --columns."
        ) from error
    if HALF_CHARACTER.search(written):
        raise ValueError(
            f"{row.where}: {name} holds half of a surrogate pair, which cannot be "
            "written; correct it."
        )
    return finite_json(value)  # Parquet has NaN and infinities


def _rounded(value: Any, unit: float) -> Any:
    """Return JSON with nine digits, which determine a float32, also in `unit`."""
    if isinstance(value, dict):
        return {name: _rounded(item, unit) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item, unit) for item in value]
    if not isinstance(value, float):
        return value
    return float(f"{value:.{significant_digits(value, unit)}g}")


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
