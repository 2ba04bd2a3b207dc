"""One vector for each text: the prompt, the cut and the pooling of a model."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from bert_jax.config import BertConfig
from bert_jax.config.embedding import Embedding
from bert_jax.config.model import Params
from bert_jax.inference.arguments import require_bool, require_texts
from bert_jax.inference.batching import compiled, compute_texts
from bert_jax.inference.language_model import require_attention
from bert_jax.inference.search import (
    require_same_width,
    require_vectors,
    similarities,
)
from bert_jax.terminal.progress import Progress
from bert_jax.tokenization import Tokenizer

_CHUNK_TEXTS = 8192
"""Texts that are tokenized and sorted by length at once."""


def with_cut(embedding: Embedding, config: BertConfig) -> Embedding:
    """Return the embedding with texts cut to the model's positions, at the latest."""
    if embedding.max_tokens is not None:
        return embedding
    return dataclasses.replace(embedding, max_tokens=config.max_position_embeddings)


@dataclasses.dataclass(frozen=True, eq=False)
class Embedder:
    """A model that makes vectors."""

    config: BertConfig
    params: Params
    tokenizer: Tokenizer
    embedding: Embedding
    trained_length: int = 0

    def embed(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        normalize: bool | None = None,
        batch_size: int = 32,
        prompt: str | None = None,
        progress: Progress | None = None,
    ) -> Float[np.ndarray, "N D"]:
        """Return the vectors of texts, as `Predictor.embed`."""
        if normalize is not None:
            normalize = require_bool("normalize", normalize)
        pooling, normalize = self.embedding.chosen(pooling, normalize)
        if pooling == "cls":
            require_attention(self.config, "bidirectional", "pooling='cls'")
        before = self.embedding.prompt_text(prompt)
        options: dict[str, Any] = {"pooling": pooling, "normalize": normalize}
        limit = self.embedding.max_tokens
        if before:
            prompt_tokens = len(self.tokenizer.encode(before).ids)
            if limit is not None and prompt_tokens >= limit - 2:
                raise ValueError(
                    f"The prompt {before!r:.80} has {prompt_tokens} tokens, and texts "
                    f"are cut to {limit}, [CLS] and [SEP] included; shorten it."
                )
            if not self.embedding.pool_prompt:
                options["skip"] = 1 + prompt_tokens  # [CLS] stands before them
        program = compiled(self.config, "embed", **options)
        vectors: list[Any] = []
        for start in range(0, len(texts), _CHUNK_TEXTS):
            chunk = [before + text for text in texts[start : start + _CHUNK_TEXTS]]
            ids = self.tokenizer.encode_batch(chunk)
            # [CLS] and [SEP] are two of the tokens.
            segments = [(one[: None if limit is None else limit - 2],) for one in ids]
            model = self.config, self.params, self.tokenizer, self.trained_length
            vectors += compute_texts(program, *model, segments, batch_size, start)
            if progress:
                progress.advance(len(chunk))
        return np.array(vectors, np.float32).reshape(-1, self.config.hidden_size)

    def similarity(
        self, first: Float[np.ndarray, "A _"], second: Float[np.ndarray, "B _"]
    ) -> Float[np.ndarray, "A B"]:
        """Return the similarity of each two vectors, as the model's files say.

        Raises:
            ValueError: the vectors are not equally long, or it cannot be computed.
        """
        if self.embedding.computed_similarity() == "cosine":
            return similarities(first, second)
        require_same_width("a", first, "b", second)
        return np.asarray(first, np.float32) @ np.asarray(second, np.float32).T

    def require_cosine(self, what: str) -> None:
        """Raise ValueError if vectors are compared otherwise than by the cosine."""
        kind = self.embedding.computed_similarity()
        # For vectors of length 1 the two are the same.
        if kind != "cosine" and not self.embedding.normalize:
            raise ValueError(
                f"The model's files require similarity={kind} of vectors that are not "
                f"normalized, and {what} compares by the cosine; use `similarity`."
            )

    def vectors(
        self,
        name: str,
        values: Sequence[str] | np.ndarray,
        prompt: str | None = None,
        prompts: Iterable[str] = (),
        batch_size: int = 32,
    ) -> Float[np.ndarray, "N D"]:
        """Return vectors as they are, and make those of texts.

        Args:
            name: of the argument, for messages.
            prompt: as `embed`; None: the first of `prompts` that the model has.
        """
        if isinstance(values, np.ndarray) and values.dtype.kind not in "OUS":
            return require_vectors(name, values)
        texts = require_texts(name, values)
        if prompt is None:
            prompt = self.embedding.first_prompt(prompts)
        progress = Progress(f"texts of {name} embedded", len(texts))
        return self.embed(
            texts, batch_size=batch_size, prompt=prompt, progress=progress
        )
