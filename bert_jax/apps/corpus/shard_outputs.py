"""What is computed of each file of a corpus: predictions, or a vector of each text."""

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, final

import numpy as np

from bert_jax.apps.corpus.shards import Shard, ShardJob
from bert_jax.config.checks import require_batch_size
from bert_jax.config.serialization import to_dict
from bert_jax.inference.predictor import Predictor, load
from bert_jax.inference.row_predictions import SKIP_DAMAGED, Request, RowPredictor
from bert_jax.inference.vector_record import (
    params_fingerprint,
    vector_record,
    write_matrix,
)
from bert_jax.inference.vectors import TextCounts, warn_of_cuts, with_cut
from bert_jax.pretrained import Model
from bert_jax.storage.files import JsonObject
from bert_jax.tables.damage import RowErrors
from bert_jax.tables.read import named_text_of, source_rows
from bert_jax.tables.rows import TableRow
from bert_jax.tables.write import write_rows

_CHUNK_ROWS = 1024


@final
@dataclasses.dataclass(frozen=True)
class PredictShards(ShardJob):
    """Predictions of a fine-tuned model, a row for each row of a file."""

    request: Request
    """Its `source` is not used."""
    format: Literal["jsonl", "csv", "parquet"] = "jsonl"

    @property
    def suffix(self) -> str:  # type: ignore[override]
        return f".{self.format}"

    def load(self) -> RowPredictor:
        return RowPredictor(self.request)

    def record(self, loaded: RowPredictor) -> JsonObject:
        request, model = self.request, loaded.model
        return {
            "verb": "predict",
            "format": self.format,
            **model_record(model),
            "batch_size": request.batch_size,
            "data": to_dict(request.data),
            "columns": list(request.columns),
            "threshold": request.threshold,
            **({"top_k": request.top_k} if request.top_k else {}),
        }

    def with_absolute_paths(self) -> "PredictShards":
        path = absolute_if_local(self.request.checkpoint)
        return dataclasses.replace(
            self, request=dataclasses.replace(self.request, checkpoint=path)
        )

    def check(self, loaded: RowPredictor, shard: Shard) -> None:
        loaded.check(shard.path, self.suffix)

    def write(
        self,
        loaded: RowPredictor,
        shard: Shard,
        output: Path,
        advance: Callable[[int], None],
    ) -> None:
        def counted() -> Iterator[list[JsonObject]]:
            for chunk in loaded.predict(shard.path, RowErrors(shard.path)):
                yield chunk
                advance(len(chunk))

        write_rows(counted(), output, allow_no_row=True)


@final
@dataclasses.dataclass(frozen=True)
class EmbedShards(ShardJob):
    """A vector of each text: an .npy file, float32 [N, D], in the order of the rows."""

    model: str
    text_column: str = "text"
    delimiter: str = ""
    skip_damaged: bool = False
    """Whether a row without a text has NaN for a vector, or is refused."""
    pooling: str | None = None
    """As `Predictor.embed`, and `normalize` and `prompt` too."""
    normalize: bool | None = None
    prompt: str | None = None
    batch_size: int = 32

    suffix = ".npy"

    def load(self) -> Predictor:
        require_batch_size(self.batch_size)
        predictor = load(self.model)
        # Documents are longer than a row: they are cut, as by `predict`.
        predictor.embedding = with_cut(predictor.embedding, predictor.config)
        self._embed(predictor, ["."], TextCounts())  # its options may not fit the model
        return predictor

    def record(self, loaded: Predictor) -> JsonObject:
        pooling, normalize = loaded.embedding.chosen(self.pooling, self.normalize)
        return {
            "verb": "embed",
            **model_record(loaded.model),
            "batch_size": self.batch_size,
            "text_column": self.text_column,
            **({"delimiter": self.delimiter} if self.delimiter else {}),
            **vector_record(loaded.model, loaded.embedding, self.prompt),
            "pooling": pooling,
            "normalize": normalize,
        }

    def with_absolute_paths(self) -> "EmbedShards":
        return dataclasses.replace(self, model=absolute_if_local(self.model))

    def check(self, loaded: Predictor, shard: Shard) -> None:
        errors = RowErrors(shard.path)
        for row in source_rows(shard.path, self.text_column, self.delimiter):
            errors.parse(row, self._text)
        errors.settle(self.skip_damaged, "have NaN for a vector", SKIP_DAMAGED)

    def write(
        self,
        loaded: Predictor,
        shard: Shard,
        output: Path,
        advance: Callable[[int], None],
    ) -> None:
        # What was found was told by `check`.
        rows = source_rows(
            shard.path, self.text_column, self.delimiter, notify=lambda _: None
        )
        width = loaded.config.hidden_size
        errors, cut = RowErrors(shard.path), TextCounts()

        def vectors() -> Iterator[np.ndarray]:
            while chunk := list(itertools.islice(rows, _CHUNK_ROWS)):
                texts = [errors.parse(row, self._text) for row in chunk]
                known = [i for i, text in enumerate(texts) if text is not None]
                part = np.full((len(chunk), width), np.nan, np.float32)
                usable = [text for text in texts if text is not None]
                part[known] = self._embed(loaded, usable, cut)
                yield part
                advance(len(chunk))

        write_matrix(vectors(), width, output)
        warn_of_cuts(cut, loaded.embedding, loaded.config, shard.path)

    def _embed(
        self, predictor: Predictor, texts: list[str], cut: TextCounts
    ) -> np.ndarray:
        return predictor.embed(
            texts, self.pooling, self.normalize, self.batch_size, self.prompt, cut
        )

    def _text(self, row: TableRow) -> str:
        return named_text_of(row, self.text_column)


def absolute_if_local(model: str) -> str:
    """Return the absolute path of a model on this machine; other names unchanged."""
    return os.path.abspath(model) if os.path.exists(model) else model


def model_record(model: Model) -> JsonObject:
    """Return what identifies a model, as JSON values."""
    return {
        "model": params_fingerprint(model.params),
        "config": to_dict(model.config),
        "tokenizer": model.tokenizer.fingerprint,
    }
