"""Use a trained model from Python: `load(path)` gives a `Predictor`."""

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any, TypeAlias, overload

import jax
import numpy as np
from jaxtyping import Float

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.data.buckets import assign_buckets, batches_by_bucket
from bert_jax.formats.embedding import Embedding
from bert_jax.inference.arguments import (
    require_count,
    require_text,
    require_texts,
    require_texts_or_pairs,
    require_truth,
)
from bert_jax.inference.evaluation import default_examples_config, examples_config
from bert_jax.inference.features import Features, features
from bert_jax.inference.model_inputs import Inputs, joined, padded
from bert_jax.inference.predictions import predictions_for, task_of
from bert_jax.model.apply import pair_probabilities, token_probabilities, vectors
from bert_jax.pretrained import load_pretrained
from bert_jax.tasks.problem import Prediction
from bert_jax.tasks.problems import problem_of
from bert_jax.tasks.tables import Row
from bert_jax.tokenization import Tokenizer

Filling: TypeAlias = tuple[str, float]  # a token for a mask, and its probability
Texts: TypeAlias = list[str] | tuple[str, ...]


def load(path: str | os.PathLike[str], allow_extra: bool = False) -> "Predictor":
    """Load a model, every file verified.

    Args:
        path: a workdir, one of its checkpoints, an imported checkpoint, a directory
            that Hugging Face's transformers saved, or hf:OWNER/NAME@REVISION.
        allow_extra: of Hugging Face's files: leave tensors aside that the model does
            not have.

    Raises:
        FileNotFoundError: there is no model, or no whole one.
        DamagedError: files are missing or altered.
        ValueError: the model is none that we compute.
    """
    model = load_pretrained(os.fspath(path), allow_extra)
    return Predictor(
        model.config,
        model.params,
        model.tokenizer,
        model.pairs,
        model.embedding,
        examples_config(model.directory),
    )


class Predictor:
    """A model and its tokenizer, ready for text.

    Attributes:
        config: the model's shape.
        params: its parameters, a nested dict of arrays (docs/pretraining.md lists it).
        tokenizer: text to ids and back.
        pairs: what the model learned of pairs: nsp, sop, or none.
        embedding: how `embed` makes a vector where nobody says otherwise.
        data: how the examples that it was fine-tuned on became rows.
    """

    def __init__(
        self,
        config: BertConfig,
        params: Any,
        tokenizer: Tokenizer,
        pairs: str = "nsp",
        embedding: Embedding | None = None,
        data: ExamplesConfig | None = None,
    ) -> None:
        self.config = config
        self.params = jax.device_put(params)
        self.tokenizer = tokenizer
        self.pairs = pairs
        self.embedding = embedding or Embedding()
        self.data = data or default_examples_config(config.max_position_embeddings)
        how = ("pooling", "normalize")
        self._embed = jax.jit(functools.partial(vectors, config), static_argnames=how)
        self._score = jax.jit(functools.partial(token_probabilities, config))
        self._follow = jax.jit(functools.partial(pair_probabilities, config))

    @overload
    def fill_mask(self, text: str, k: int = 5) -> list[Filling]: ...
    @overload
    def fill_mask(self, text: Texts, k: int = 5) -> list[list[Filling]]: ...
    def fill_mask(self, text: Any, k: int = 5) -> Any:
        """The k likeliest tokens for the one `[MASK]` in `text`, with probabilities.

        Of a list of texts, a list with these of each.

        Raises:
            ValueError: `text` does not hold exactly one [MASK], or is too long, or
                the model has no masked-LM head.
        """
        self._require("masked_lm", "fill_mask")
        require_count("k", k)
        if isinstance(text, list | tuple):
            return [self.fill_mask(each, k) for each in require_texts("text", text)]
        require_text("text", text)
        ids = self.tokenizer.encode(text, mask_token=True).ids.tolist()
        masks = ids.count(self.tokenizer.mask_id)
        if masks != 1:
            raise ValueError(
                f"The text holds {masks} [MASK] tokens; fill_mask takes exactly one."
            )
        batch = self._inputs([self._ids(ids)])
        position = batch[0][0].tolist().index(self.tokenizer.mask_id)
        probabilities = np.asarray(self._score(self.params, *batch, position))
        best = np.argsort(-probabilities, kind="stable")[:k]
        return [(self.tokenizer.token(int(i)), float(probabilities[i])) for i in best]

    def next_sentence(self, first: str, second: str) -> float:
        """The probability that `second` follows `first` in a text.

        Raises:
            ValueError: the two are too long together, or the model has no
                next-sentence head, or learned something else of pairs.
        """
        self._require("next_sentence", "next_sentence")
        if self.pairs != "nsp":
            raise ValueError(
                f"The model was pretrained with pairs={self.pairs} and never saw a "
                "random second segment; next_sentence needs one trained with nsp."
            )
        texts = [require_text("first", first), require_text("second", second)]
        a, b = self.tokenizer.encode_batch(texts)
        batch = self._inputs([self._ids(a, b)])
        return float(self._follow(self.params, *batch)[0, 0])

    def embed(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        normalize: bool | None = None,
        batch_size: int = 32,
    ) -> Float[np.ndarray, "B D"]:
        """One float32 vector a text, from the last layer.

        A vector depends on its text alone; the batch it is in adds rounding at most.
        Where the model's files have `max_seq_length`, longer texts are cut off there.

        Args:
            pooling: mean over the real tokens, [CLS] and [SEP] among them, or cls,
                the hidden state of [CLS]; None: as the model's files say, or mean.
            normalize: divide each vector by its L2 norm; None: as the model's files
                say, or not.
            batch_size: texts that are computed at once.

        Raises:
            ValueError: a text is too long, `texts` is one string, `pooling` is
                neither, or the model's files ask for what we do not compute and
                `pooling` or `normalize` is None.
        """
        pooling, normalize = self._how_to_embed(pooling, normalize)
        found, limit = self.tokenizer.encode_batch(require_texts("texts", texts)), None
        if self.embedding.max_tokens is not None:
            limit = self.embedding.max_tokens - 2  # [CLS] and [SEP]
        rows = [self._ids(ids[:limit]) for ids in found]
        lengths = np.array([len(ids) for ids, _ in rows], np.int64)
        buckets = assign_buckets(lengths, self.config.max_position_embeddings)
        embedded = np.zeros((len(rows), self.config.hidden_size), np.float32)
        for _, numbers in batches_by_bucket(buckets, batch_size):
            # Filled up to few sizes, so that few programs are compiled.
            size = min(batch_size, 1 << (len(numbers) - 1).bit_length())
            batch = self._inputs([rows[i] for i in numbers], size)
            found = self._embed(
                self.params, *batch, pooling=pooling, normalize=normalize
            )
            embedded[numbers] = np.asarray(found)[: len(numbers)]
        return embedded

    def classify(self, texts: Sequence[str | tuple[str, str]]) -> list[Prediction]:
        """What a fine-tuned model says of each text, or pair of texts.

        Returns:
            Of one class: `label` and `probabilities`; of several: `labels` and the
            same; of a number: `value`.

        Raises:
            ValueError: the model was not fine-tuned on texts, or `texts` is one string.
        """
        parts = require_texts_or_pairs("texts", texts)
        columns = ("first", "second")[: max(map(len, parts), default=1)]
        rows = [dict(zip(columns, each, strict=True)) for each in parts]
        data = dataclasses.replace(self.data, text_columns=columns)
        return self._predict(rows, "text-", "classify", data)

    def tag(self, texts: Sequence[str]) -> list[Prediction]:
        """The `entities` in each text, with their `start` and `end` in it.

        Raises:
            ValueError: the model was not fine-tuned to tag, or `texts` is one string.
        """
        rows = [{"text": text} for text in require_texts("texts", texts)]
        return self._predict(rows, "token-classification", "tag", self.data)

    def answer(
        self, question: str, context: str, null_threshold: float | None = None
    ) -> Prediction:
        """The `answer` to a question in a text, its `start` and `end` there, and more.

        Args:
            null_threshold: of `null_odds` above which there is none; None: the run's.

        Raises:
            ValueError: the model was not fine-tuned on questions.
        """
        require_text("question", question)
        row = {"question": question, "context": require_text("context", context)}
        data = self.data
        if null_threshold is not None:
            data = dataclasses.replace(data, null_threshold=null_threshold)
        return self._predict([row], "question-answering", "answer", data)[0]

    def choose(self, context: str, choices: Sequence[str]) -> Prediction:
        """The number of the likeliest `choice` after a text, and all `probabilities`.

        Raises:
            ValueError: the model was not fine-tuned to choose.
        """
        require_text("context", context)
        row = {"context": context, "choices": require_texts("choices", choices)}
        return self._predict([row], "multiple-choice", "choose", self.data)[0]

    def features(
        self,
        texts: Sequence[str],
        layers: Sequence[int] = (-1,),
        combine: str = "concatenate",
    ) -> list[Features]:
        """Each text's tokens with their places in it, and hidden states of `layers`.

        Args:
            layers: 0 for the embeddings, 1 … L, or from behind: -1 for the last.
            combine: concatenate or sum, of several layers.

        Raises:
            ValueError: a text is too long, or there is no such layer.
        """
        model = self.config, self.params, self.tokenizer
        return features(*model, require_texts("texts", texts), layers, combine)

    def _predict(
        self, rows: list[dict[str, Any]], kind: str, what: str, data: ExamplesConfig
    ) -> list[Prediction]:
        task = task_of(self.config)
        if not task.startswith(kind):
            raise ValueError(
                f"The model was fine-tuned on {task}, and {what} is of another task; "
                "load one that was fine-tuned on it."
            )
        problem = problem_of(task)
        records = [
            problem.record(Row(row, f"text {number}"), data)
            for number, row in enumerate(rows)
        ]
        return predictions_for(self.config, self.params, self.tokenizer, records, data)

    def _how_to_embed(
        self, pooling: str | None, normalize: bool | None
    ) -> tuple[str, bool]:
        """What is asked for, and the model's own way where nothing is."""
        own = self.embedding
        if own.unsupported and (pooling is None or normalize is None):
            raise ValueError(
                f"The model's files ask for {own.unsupported}, which embed does not "
                "compute; pass both pooling and normalize for another vector."
            )
        pooling = own.pooling if pooling is None else pooling
        if pooling not in ("mean", "cls"):
            raise ValueError(f"pooling={pooling!r:.80} must be 'mean' or 'cls'.")
        normalize = own.normalize if normalize is None else normalize
        return pooling, require_truth("normalize", normalize)

    def _require(self, head: str, what: str) -> None:
        """Refuse what takes a head that the model lacks."""
        if head not in self.params:
            raise ValueError(
                f"The model has no {head} head (head={self.config.head}), which {what} "
                "takes; load a pretrained model that has one."
            )

    def _ids(self, *segments: list[int]) -> tuple[list[int], int]:
        return joined(self.tokenizer, self.config, *segments)

    def _inputs(self, rows: Sequence[tuple[list[int], int]], size: int = 1) -> Inputs:
        return padded(self.tokenizer, self.config, rows, size)
