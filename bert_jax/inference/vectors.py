"""One vector for each text: the prompt, the cut and the pooling of a model."""

import collections
import dataclasses
import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from bert_jax.config import BertConfig
from bert_jax.config.embedding import Embedding
from bert_jax.inference.arguments import require_bool, require_count, require_texts
from bert_jax.inference.batching import Program, compiled, compute_texts
from bert_jax.inference.language_model import require_attention
from bert_jax.inference.search import require_same_width, require_vectors
from bert_jax.inference.vector_record import require_same_vectors, vector_record
from bert_jax.pretrained import Model
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.lengths import TAKES_NO_MORE, cut_lines
from bert_jax.tasks.pairs.prompts import checked_prompt
from bert_jax.terminal.messages import warn
from bert_jax.terminal.progress import Progress

TextCounts = collections.Counter[str]
_CHUNK_TEXTS = 8192
"""Texts that are tokenized and sorted by length at once."""


def with_cut(embedding: Embedding, config: BertConfig) -> Embedding:
    """Return the embedding with texts cut to the model's positions, at the latest."""
    if embedding.max_tokens is not None:
        return embedding
    return embedding.changed(max_tokens=config.max_position_embeddings)


def warn_of_cuts(
    counts: TextCounts, embedding: Embedding, config: BertConfig, name: str
) -> None:
    """Warn of the number of texts that are `cut`; `name` is of their file, or ""."""
    limit = embedding.max_tokens or 0
    is_full = limit == config.max_position_embeddings
    remedy = TAKES_NO_MORE if is_full else "as the model's files say: shorten them"
    for line in cut_lines(counts["cut"], counts["texts"], limit, remedy):
        warn(f"{name}: {line}" if name else line)


@dataclasses.dataclass(frozen=True, eq=False)
class Embedder:
    """A model that makes vectors, and how."""

    model: Model
    embedding: Embedding

    def embed(
        self,
        texts: Sequence[str],
        prepared: tuple[str, Program],
        batch_size: int,
        counts: TextCounts | None = None,
        progress: Progress | None = None,
        name: str = "",
    ) -> Float[np.ndarray, "N D"]:
        """Return the vectors of texts, by what `prepared` returned."""
        before, program = prepared
        limit = self.embedding.max_tokens
        most = sys.maxsize if limit is None else limit - 2  # without [CLS] and [SEP]
        own = TextCounts() if counts is None else counts
        vectors: list[Any] = []
        for start in range(0, len(texts), _CHUNK_TEXTS):
            chunk = [before + text for text in texts[start : start + _CHUNK_TEXTS]]
            segments = []
            for ids in self.model.tokenizer.encode_each(chunk):
                segments.append((ids[:most],))
                own["cut"] += len(ids) > most
            own["texts"] += len(chunk)
            vectors += compute_texts(program, self.model, segments, batch_size, start)
            if progress:
                progress.advance(len(chunk))
        if counts is None:
            warn_of_cuts(own, self.embedding, self.model.config, name)
        return np.array(vectors, np.float32).reshape(-1, self.model.config.hidden_size)

    def prepared(
        self, pooling: str | None, normalize: bool | None, prompt: str | None
    ) -> tuple[str, Program]:
        """Return the text before each text, and the program; check the arguments."""
        if normalize is not None:
            normalize = require_bool("normalize", normalize)
        pooling, normalize = self.embedding.chosen(pooling, normalize)
        if pooling == "cls":
            require_attention(self.model, "bidirectional", "pooling='cls'")
        limit = self.embedding.max_tokens
        tokenizer = self.model.tokenizer
        text, skip = checked_prompt(self.embedding, tokenizer, prompt, limit)
        options: dict[str, Any] = {"pooling": pooling, "normalize": normalize}
        if skip:
            options["skip"] = skip
        return text, compiled(self.model.config, "embed", **options)

    def _record(self, prompt: str | None) -> JsonObject:
        """Return what stored vectors must have been made by, to be compared."""
        embedding = with_cut(self.embedding, self.model.config)
        record = vector_record(self.model, embedding, prompt)
        if embedding.unsupported:
            del record["pooling"]  # it was chosen when the vectors were made
        return record

    def vectors(
        self,
        sides: Mapping[str, tuple[Any, str | None, Iterable[str]]],
        batch_size: int,
        progress: bool = False,
    ) -> list[Float[np.ndarray, "_ D"]]:
        """Return vectors as they are, and embed texts; ValueError if widths differ.

        All is checked before. `sides` has by the name of an argument: texts or vectors;
        the prompt of texts, a text or a name; and for a prompt of None the names of
        prompts of which the first is taken that the model has. `progress` prints lines.
        """
        checked: list[tuple[str, Any, str | None]] = []
        widths = {}
        for name, (values, prompt, prompts) in sides.items():
            if prompt is None:
                prompt = self.embedding.first_prompt(prompts)
            values = np.asarray(values) if isinstance(values, jax.Array) else values
            widths[name] = self.model.config.hidden_size
            if isinstance(values, np.ndarray) and values.dtype.kind not in "OUS":
                own = functools.partial(self._record, prompt)
                require_same_vectors(name, values, own)
                widths[name] = require_vectors(name, values).shape[1]
            else:
                self.prepared(None, None, prompt)
                values = require_texts(name, values)
            checked.append((name, values, prompt))
        require_count("batch_size", batch_size)
        require_same_width(widths)
        made = []
        for name, values, prompt in checked:
            if isinstance(values, list):
                line = Progress(f"texts of {name} embedded", len(values))
                shown = line if progress else None
                prepared = self.prepared(None, None, prompt)
                values = self.embed(values, prepared, batch_size, None, shown, name)
            made.append(values)
        return made
