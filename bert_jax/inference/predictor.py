"""Use a trained model from Python: `load(path)` gives a `Predictor`."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias, overload

import jax
import numpy as np
from etils import epath
from jaxtyping import Array, Float, Key

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.embedding import CORPUS_PROMPTS, QUERY_PROMPTS, Embedding
from bert_jax.config.model import Params
from bert_jax.inference import evaluation
from bert_jax.inference.arguments import (
    as_several,
    is_several,
    one_or_several,
    require_count,
    require_texts,
    require_two_sides,
)
from bert_jax.inference.attention import attention
from bert_jax.inference.features import Features, features
from bert_jax.inference.finetuned import FinetunedPredictor, TextOrPair
from bert_jax.inference.language_model import (
    checked_sampling,
    fillings,
    follow_probabilities,
    generated_text,
    log_likelihoods,
    pseudo_log_likelihoods,
)
from bert_jax.inference.search import Hits, nearest, similarities
from bert_jax.inference.vectors import Embedder, TextCounts
from bert_jax.pretrained import Model, load_pretrained
from bert_jax.terminal.messages import warn
from bert_jax.terminal.progress import Progress
from bert_jax.tokenization import Tokenizer

Texts: TypeAlias = list[str] | tuple[str, ...]


def load(path: str | os.PathLike[str], allow_extra: bool = False) -> "Predictor":
    """Load a model; the checksum of every file is verified.

    Args:
        path: a workdir, one of its checkpoints, an imported checkpoint, a directory
            that Hugging Face's transformers saved, or hf:OWNER/NAME.
        allow_extra: ignore tensors of Hugging Face's files that the model lacks.

    Raises:
        FileNotFoundError: there is no model, or no verified one.
        DamagedError: files are missing or altered.
        ValueError: the library cannot compute this model.
    """
    model = load_pretrained(os.fspath(path), allow_extra)
    bert = Predictor(
        model.config,
        model.params,
        model.tokenizer,
        model.pairs,
        model.embedding,
        evaluation.examples_config_of(model),
        model.trained_length,
    )
    bert._source = dataclasses.replace(model, params={})
    return bert


class Predictor(FinetunedPredictor):
    """A model and its tokenizer, ready for text.

    Texts are computed in batches of `batch_size`. A result depends only on its own
    text, except for rounding, which may depend on the batch.

    Attributes:
        config: the model's shape.
        params: its parameters, a nested dict of arrays (docs/pretraining.md lists it).
        tokenizer: text to ids and back.
        pairs: the pair objective that the model learned: nsp, sop, or none.
        embedding: the default of `embed`.
        data: the settings by which the examples of fine-tuning became rows.
        trained_length: tokens in a row of its last pretraining run; 0: unknown. A
            longer text gives a warning.
        model: all of this as one value, as the functions of this package take it.
    """

    def __init__(
        self,
        config: BertConfig,
        params: Params,
        tokenizer: Tokenizer,
        pairs: str = "nsp",
        embedding: Embedding | None = None,
        data: ExamplesConfig | None = None,
        trained_length: int = 0,
    ) -> None:
        self.config = config
        self.params = jax.device_put(params)
        self.tokenizer = tokenizer
        self.pairs = pairs
        self.embedding = embedding or Embedding()
        self.trained_length = trained_length
        length = config.max_position_embeddings
        self.data = data or evaluation.default_examples_config(length)
        self._source: Model | None = None

    def __repr__(self) -> str:
        shape = f"{self.config.num_hidden_layers} layers of {self.config.hidden_size}"
        return f"Predictor({shape}, head {self.config.head}, {self.tokenizer})"

    def save(
        self,
        output: str | os.PathLike[str],
        to: str = "huggingface",
        license: str = "",
        language: str | Sequence[str] = (),
    ) -> Path:
        """Write the model as it is now; return where.

        Args:
            output: a directory that is new or empty; of a page, a .html file.
            to: huggingface, files for transformers and `load`; onnx, a graph for ONNX
                Runtime; checkpoint, files for `load` and `init_from`; stablehlo, a
                program for JAX; page, a web page by which a small model fills masks.
            license: for the card of huggingface, such as apache-2.0; empty: that of
                the model that this was made of, if known.
            language: one or several, such as en, of the same card; empty: likewise.

        Raises:
            FileExistsError: `output` exists and is not an empty directory.
            ValueError: there is no such form, or it cannot express the model.
        """
        from bert_jax.apps.convert.save import save

        save(self.model, os.fspath(output), to, warn, license, language)
        return Path(output)

    @property
    def model(self) -> Model:
        """The model as it is in memory, with where it was read from."""
        source = self._source or Model(
            config=self.config,
            params={},
            tokenizer=self.tokenizer,
            pairs=self.pairs,
            directory=epath.Path("model"),
            imported=True,
            embedding=None,
            sources=(),
        )
        is_own = self.embedding != (source.embedding or Embedding())
        return dataclasses.replace(
            source,
            config=self.config,
            params=self.params,
            tokenizer=self.tokenizer,
            pairs=self.pairs,
            trained_length=self.trained_length,
            data=self.data,
            embedding=self.embedding if is_own else source.embedding,
        )

    def fill_mask(
        self, text: Any, k: int = 5, batch_size: int = 32, top_k: int | None = None
    ) -> Any:
        """Return the k most probable tokens for a mask, and how probable each is.

        The masks of a text are filled at once, each without what fills the others.

        Args:
            text: one or a list, with [MASK] or <mask>; top_k: another name of `k`.

        Returns:
            A list of (token, probability) for a text with one mask; a list for each
            mask, in their order, for a text with several; for a list of texts, a list
            with that of each.

        Raises:
            ValueError: a text holds no mask, or is too long, or the model has no
                masked-LM head, or causal attention.
        """
        k = k if top_k is None else require_count("top_k", top_k)
        return fillings(self.model, text, k, batch_size)

    def generate(
        self,
        prompt: str | Sequence[str] = "",
        num_tokens: int = 50,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        key: Key[Array, ""] | None = None,
    ) -> Any:
        """Continue a text by a causal model; return the text and its continuation.

        It ends at [SEP], or after `num_tokens` tokens.

        Args:
            prompt: one text, or a list of them; each is continued as if alone.
            temperature: divides the scores; 0: always the most probable token.
            top_k: draw from the k most probable tokens; 0: from all.
            top_p: draw from the fewest tokens whose probabilities add up to this.
            key: the same key gives the same text; None: `jax.random.key(0)`.

        Raises:
            ValueError: a number is out of range, prompt and tokens are more than the
                model's positions, or the model's attention is not causal.
        """
        num_tokens = require_count("num_tokens", num_tokens)
        key = jax.random.key(0) if key is None else key
        sampling = checked_sampling(temperature, top_k, top_p)
        prompts, index = as_several(prompt)
        texts = [
            generated_text(self.model, text, num_tokens, sampling, key)
            for text in require_texts("prompt", prompts)
        ]
        return texts[index]

    @one_or_several
    def log_likelihood(self, texts: Sequence[str], batch_size: int = 8) -> list[float]:
        """Return the log probability of each text's tokens by a causal model, in nats.

        Of one text in place of a list, a number.

        Raises:
            ValueError: a text is too long, or the model's attention is not causal.
        """
        return log_likelihoods(self.model, require_texts("texts", texts), batch_size)

    @one_or_several
    def pseudo_log_likelihood(
        self, texts: Sequence[str], batch_size: int = 8
    ) -> list[float]:
        """Return each text's log probability in nats, each token masked alone.

        It is the sum over tokens (Salazar et al. 2020, §2), and no probability. Of one
        text in place of a list, a number.

        Raises:
            ValueError: a text is too long, or the model's attention is causal.
        """
        texts = require_texts("texts", texts)
        return pseudo_log_likelihoods(self.model, texts, batch_size)

    @overload
    def next_sentence(self, first: str, second: str, batch_size: int = 32) -> float: ...
    @overload
    def next_sentence(
        self, first: Texts, second: Texts, batch_size: int = 32
    ) -> list[float]: ...
    def next_sentence(self, first: Any, second: Any, batch_size: int = 32) -> Any:
        """Return the probability that `second` follows `first` in a text.

        For two lists of texts of the same length, return a list of probabilities.

        Raises:
            ValueError: the two are too long together, or the model has no
                next-sentence head, or learned another pair objective.
        """
        pairs = require_two_sides(first, second)
        follows = follow_probabilities(self.model, pairs, batch_size)
        return follows if is_several(first) else follows[0]

    @one_or_several
    def embed(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        normalize: bool | None = None,
        batch_size: int = 32,
        prompt: str | None = None,
        cut: TextCounts | None = None,
        progress: bool = False,
    ) -> Float[np.ndarray, "B D"]:
        """Return one float32 vector per text, from the last layer.

        If the model's files have `max_seq_length`, longer texts are cut off there.

        Args:
            texts: a list; or one text, whose vector [D] is returned.
            pooling: mean over the real tokens, [CLS] and [SEP] included, or cls, the
                hidden state of [CLS]; None: as the model's files say, or mean.
            normalize: divide vectors by their L2 norm; None: as the files say, or not.
            batch_size: texts that are computed at once.
            prompt: put before each text: the name of one of `embedding.prompts`, or a
                text; "": none; None: the model's default prompt, if it has one.
            cut: takes the number of `texts` and of those `cut`; None: a warning.
            progress: print now and then how far it is.

        Raises:
            ValueError: a text is too long, `pooling` is neither, there is no such
                prompt, or the model's files need what the library does not compute
                and `pooling` or `normalize` is None.
        """
        texts = require_texts("texts", texts)
        shown = Progress("texts embedded", len(texts)) if progress else None
        embedder = self._embedder
        prepared = embedder.prepared(pooling, normalize, prompt)
        return embedder.embed(texts, prepared, batch_size, cut, shown)

    def similarity(
        self,
        a: Sequence[str] | np.ndarray,
        b: Sequence[str] | np.ndarray,
        batch_size: int = 32,
        progress: bool = False,
    ) -> Any:
        """Return the similarity of each text or vector of `a` to each of `b`.

        It is the cosine, or the dot product if `embedding.similarity` is dot: an array
        [A, B] of float32, without the axis of a side that is one text or one vector.

        Raises:
            ValueError: they are neither texts nor vectors [N, D], two vectors differ in
                length, the model's files require another similarity, or as `embed`.
        """
        similarity = self.embedding.computed_similarity()
        (a, rows), (b, columns) = as_several(a), as_several(b)
        sides = {"a": (a, None, ()), "b": (b, None, ())}
        first, second = self._embedder.vectors(sides, batch_size, progress)
        return similarities(first, second, similarity)[rows, columns]

    def search(
        self,
        queries: Sequence[str] | np.ndarray,
        corpus: Sequence[str] | np.ndarray,
        k: int = 10,
        batch_size: int = 32,
        query_prompt: str | None = None,
        corpus_prompt: str | None = None,
        progress: bool = False,
    ) -> Hits:
        """Return the k texts of a corpus that are most similar to each query.

        The search is exact: each query is compared with the whole corpus, a block of
        it after the other on the device.

        Args:
            queries: texts, or their vectors; or one of either, for hits of shape [K].
            corpus: texts, or their vectors, which may be a memory map of an .npy file.
                One that `bert-jax embed` or `search` wrote must be of this model.
            query_prompt: as `prompt` of `embed`; None: the model's prompt "query".
            corpus_prompt: None: the model's "document", "passage" or "corpus".
            progress: print now and then how far it is.

        Raises:
            ValueError: as `embed` and `similarity`.
        """
        k = require_count("k", k)
        similarity = self.embedding.computed_similarity()
        queries, rows = as_several(queries)
        sides = {
            "queries": (queries, query_prompt, QUERY_PROMPTS),
            "corpus": (corpus, corpus_prompt, CORPUS_PROMPTS),
        }
        first, stored = self._embedder.vectors(sides, batch_size, progress)
        hits = nearest(first, stored, k, similarity, progress=progress)
        return Hits(hits.indices[rows], hits.scores[rows])

    @property
    def _embedder(self) -> Embedder:
        return Embedder(self.model, self.embedding)

    @one_or_several
    def features(
        self,
        texts: Sequence[str],
        layers: Sequence[int] = (-1,),
        combine: str = "concatenate",
        batch_size: int = 32,
    ) -> list[Features]:
        """Return each text's tokens with their offsets, and hidden states of `layers`.

        Args:
            texts: a list; or one text, whose features are returned alone.
            layers: 0 for the embeddings, 1 … L, or from the end: -1 is the last.
            combine: concatenate or sum several layers.

        Raises:
            ValueError: a text is too long, or there is no such layer.
        """
        texts = require_texts("texts", texts)
        require_count("batch_size", batch_size)
        return features(self.model, texts, layers, combine, batch_size)

    def attention(self, text: TextOrPair) -> Float[np.ndarray, "L N T T"]:
        """Return how much each token of a text attends to each other, in float32.

        By layer and head; the tokens are those of `features`: [CLS] first and [SEP]
        last. A pair of texts is one row.

        Raises:
            ValueError: the text is too long.
        """
        return attention(self.model, text).probabilities
