"""Use a trained model from Python: `load(path)` gives a `Predictor`."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, TypeAlias, overload

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.model import Params
from bert_jax.formats.embedding import Embedding
from bert_jax.inference.arguments import (
    require_bool,
    require_count,
    require_text,
    require_texts,
    require_texts_or_pairs,
)
from bert_jax.inference.attention import attention
from bert_jax.inference.batching import (
    Program,
    compiled,
    compiled_fill,
    compute_rows,
    predict_examples,
    rows_of,
)
from bert_jax.inference.evaluation import default_examples_config, examples_config
from bert_jax.inference.features import Features, features
from bert_jax.inference.language_model import (
    generated_text,
    log_likelihoods,
    masked_segments,
    pseudo_log_likelihoods,
    require_attention,
    require_head,
)
from bert_jax.pretrained import load_pretrained
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.finetuning_task import Prediction
from bert_jax.tasks.registry import finetuning_task, task_name_of
from bert_jax.tasks.tables import TableRow
from bert_jax.tokenization import Tokenizer

Filling: TypeAlias = tuple[str, float]
"""A token for a mask, and its probability."""
Texts: TypeAlias = list[str] | tuple[str, ...]


def load(path: str | os.PathLike[str], allow_extra: bool = False) -> "Predictor":
    """Load a model; the checksum of every file is verified.

    Args:
        path: a workdir, one of its checkpoints, an imported checkpoint, a directory
            that Hugging Face's transformers saved, or hf:OWNER/NAME.
        allow_extra: for Hugging Face's files: ignore tensors that the model does not
            have.

    Raises:
        FileNotFoundError: there is no model, or no verified one.
        DamagedError: files are missing or altered.
        ValueError: the library cannot compute this model.
    """
    model = load_pretrained(os.fspath(path), allow_extra)
    data = examples_config(model.directory)
    read = model.config, model.params, model.tokenizer
    return Predictor(*read, model.pairs, model.embedding, data, model.trained_length)


class Predictor:
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
        self.data = data or default_examples_config(config.max_position_embeddings)

    def __repr__(self) -> str:
        shape = f"{self.config.num_hidden_layers} layers of {self.config.hidden_size}"
        return f"Predictor({shape}, head {self.config.head}, {self.tokenizer})"

    @overload
    def fill_mask(
        self, text: str, k: int = 5, batch_size: int = 32
    ) -> list[Filling]: ...
    @overload
    def fill_mask(
        self, text: Texts, k: int = 5, batch_size: int = 32
    ) -> list[list[Filling]]: ...
    def fill_mask(self, text: Any, k: int = 5, batch_size: int = 32) -> Any:
        """Return the k most probable tokens for `[MASK]`, and how probable each is.

        Raises:
            ValueError: `text` does not hold exactly one [MASK], or is too long, or
                the model has no masked-LM head, or causal attention.
        """
        require_head(self.config, self.params, "masked_lm", "fill_mask")
        require_attention(self.config, "bidirectional", "fill_mask")
        require_count("k", k)
        if not isinstance(text, list | tuple):
            segments = masked_segments(self.tokenizer, [require_text("text", text)])
        else:
            texts = require_texts("text", text)
            segments = masked_segments(self.tokenizer, texts, numbered=True)
        program = compiled_fill(self.config, self.tokenizer.mask_id, k)
        fillings = [
            list(zip(self.tokenizer.tokens(ids.tolist()), values.tolist(), strict=True))
            for values, ids in self._compute(program, segments, batch_size)
        ]
        return fillings if isinstance(text, list | tuple) else fillings[0]

    def generate(
        self,
        prompt: str = "",
        num_tokens: int = 50,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        key: Key[Array, ""] | None = None,
    ) -> str:
        """Continue a text by a causal model; return both, as `Tokenizer.decode`.

        It ends at [SEP], or after `num_tokens` tokens.

        Args:
            temperature: divides the scores; 0: always the most probable token.
            top_k: draw from the k most probable tokens; 0: from all.
            top_p: draw from the fewest tokens whose probabilities add up to this.
            key: the same key gives the same text; None: `jax.random.key(0)`.

        Raises:
            ValueError: a number is out of range, prompt and tokens are more than the
                model's positions, or the model's attention is not causal.
        """
        require_head(self.config, self.params, "masked_lm", "generate")
        require_count("num_tokens", num_tokens)
        key = jax.random.key(0) if key is None else key
        model = self.config, self.params, self.tokenizer
        sampling, longest = (temperature, top_k, top_p), self.trained_length
        prompt = require_text("prompt", prompt)
        return generated_text(*model, prompt, num_tokens, sampling, key, longest)

    def log_likelihood(self, texts: Sequence[str], batch_size: int = 8) -> list[float]:
        """Return the log probability of each text's tokens by a causal model, in nats.

        Raises:
            ValueError: a text is too long, or the model's attention is not causal.
        """
        require_head(self.config, self.params, "masked_lm", "log_likelihood")
        model = self.config, self.params, self.tokenizer
        texts, longest = require_texts("texts", texts), self.trained_length
        return log_likelihoods(*model, texts, batch_size, longest)

    def pseudo_log_likelihood(
        self, texts: Sequence[str], batch_size: int = 8
    ) -> list[float]:
        """Return each text's log probability in nats, each token masked alone.

        It is the sum over tokens (Salazar et al. 2020, §2), and no probability.

        Raises:
            ValueError: a text is too long, or the model's attention is causal.
        """
        require_head(self.config, self.params, "masked_lm", "pseudo_log_likelihood")
        model = self.config, self.params, self.tokenizer
        texts, longest = require_texts("texts", texts), self.trained_length
        return pseudo_log_likelihoods(*model, texts, batch_size, longest)

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
        require_head(self.config, self.params, "next_sentence", "next_sentence")
        if self.pairs != "nsp":
            raise ValueError(
                f"The model was pretrained with pairs={self.pairs}, not on whether a "
                "second segment follows; next_sentence needs one trained with nsp."
            )
        single = not isinstance(first, list | tuple)
        if single:
            sides = [[require_text("first", first)], [require_text("second", second)]]
        else:
            sides = [require_texts("first", first), require_texts("second", second)]
        if len(sides[0]) != len(sides[1]):
            raise ValueError(
                f"first has {len(sides[0])} texts and second has {len(sides[1])}; "
                "pass the same number of each."
            )
        segments = list(zip(*map(self.tokenizer.encode_batch, sides), strict=True))
        outputs = self._compute(compiled(self.config, "follows"), segments, batch_size)
        follows = [float(values[0]) for values in outputs]
        return follows[0] if single else follows

    def embed(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        normalize: bool | None = None,
        batch_size: int = 32,
    ) -> Float[np.ndarray, "B D"]:
        """Return one float32 vector per text, from the last layer.

        If the model's files have `max_seq_length`, longer texts are cut off there.

        Args:
            pooling: mean over the real tokens, [CLS] and [SEP] included, or cls, the
                hidden state of [CLS]; None: as the model's files say, or mean.
            normalize: divide each vector by its L2 norm; None: as the model's files
                say, or not.
            batch_size: texts that are computed at once.

        Raises:
            ValueError: a text is too long, `texts` is one string, `pooling` is
                neither, or the model's files need what the library does not compute and
                `pooling` or `normalize` is None.
        """
        if normalize is not None:
            normalize = require_bool("normalize", normalize)
        pooling, normalize = self.embedding.chosen(pooling, normalize)
        if pooling == "cls":
            require_attention(self.config, "bidirectional", "pooling='cls'")
        ids, limit = self.tokenizer.encode_batch(require_texts("texts", texts)), None
        if self.embedding.max_tokens is not None:
            limit = self.embedding.max_tokens - 2  # [CLS] and [SEP]
        program = compiled(self.config, "embed", pooling=pooling, normalize=normalize)
        vectors = self._compute(program, [(one[:limit],) for one in ids], batch_size)
        return np.array(vectors, np.float32).reshape(-1, self.config.hidden_size)

    def _compute(
        self,
        program: Program,
        segments: Sequence[tuple[Sequence[int], ...]],
        batch_size: int,
    ) -> list[Any]:
        require_count("batch_size", batch_size)
        if not segments:
            return []
        longest = self.trained_length
        rows = rows_of(self.tokenizer, self.config, segments, trained_length=longest)
        return compute_rows(program, self.params, rows, self.config, batch_size)

    def classify(
        self, texts: Sequence[str | tuple[str, str]], batch_size: int = 32
    ) -> list[Prediction]:
        """Return the prediction of a fine-tuned model for each text or pair of texts.

        Returns:
            For one class: `label` and `probabilities`; for several: `labels` and the
            same; for a number: `value`.

        Raises:
            ValueError: the model was not fine-tuned on texts, or `texts` is one string.
        """
        parts = require_texts_or_pairs("texts", texts)
        columns = ("first", "second")[: max(map(len, parts), default=1)]
        rows = [dict(zip(columns, part, strict=True)) for part in parts]
        data = dataclasses.replace(self.data, text_columns=columns)
        return self._predict(rows, "text-", "classify", batch_size, data)

    def tag(self, texts: Sequence[str], batch_size: int = 32) -> list[Prediction]:
        """Return the `entities` in each text, with their `start` and `end` in it.

        Raises:
            ValueError: the model was not fine-tuned to tag, or `texts` is one string.
        """
        rows = [{"text": text} for text in require_texts("texts", texts)]
        return self._predict(rows, "token-classification", "tag", batch_size)

    def answer(
        self,
        question: str,
        context: str,
        null_threshold: float | None = None,
        batch_size: int = 32,
    ) -> Prediction:
        """Return the `answer` to a question in a text, its `start` and `end`, and more.

        Args:
            null_threshold: there is no answer if `null_odds` is above this; None: the
                run's own threshold.
            batch_size: windows of the text that are computed at once.

        Raises:
            ValueError: the model was not fine-tuned on questions.
        """
        require_text("question", question)
        row = {"question": question, "context": require_text("context", context)}
        data = self.data
        if null_threshold is not None:
            data = dataclasses.replace(data, null_threshold=null_threshold)
        return self._predict([row], "question-answering", "answer", batch_size, data)[0]

    def choose(
        self, context: str, choices: Sequence[str], batch_size: int = 32
    ) -> Prediction:
        """Return the number of the most probable `choice`, and all `probabilities`.

        Raises:
            ValueError: the model was not fine-tuned to choose.
        """
        require_text("context", context)
        row = {"context": context, "choices": require_texts("choices", choices)}
        return self._predict([row], "multiple-choice", "choose", batch_size)[0]

    def features(
        self,
        texts: Sequence[str],
        layers: Sequence[int] = (-1,),
        combine: str = "concatenate",
        batch_size: int = 32,
    ) -> list[Features]:
        """Return each text's tokens with their offsets, and hidden states of `layers`.

        Args:
            layers: 0 for the embeddings, 1 … L, or from the end: -1 is the last.
            combine: concatenate or sum several layers.

        Raises:
            ValueError: a text is too long, or there is no such layer.
        """
        texts = require_texts("texts", texts)
        require_count("batch_size", batch_size)
        inputs = self.config, self.params, self.tokenizer, texts, layers, combine
        longest = self.trained_length
        return features(*inputs, batch_size=batch_size, trained_length=longest)

    def attention(self, text: str | tuple[str, str]) -> Float[np.ndarray, "L N T T"]:
        """Return how much each token of a text attends to each other, in float32.

        By layer and head; the tokens are those of `features`: [CLS] first and [SEP]
        last. A pair of texts is one row.

        Raises:
            ValueError: the text is too long.
        """
        model = self.config, self.params, self.tokenizer
        return attention(*model, text, self.trained_length).probabilities

    def _predict(
        self,
        rows: list[JsonObject],
        kind: str,
        method: str,
        batch_size: int,
        data: ExamplesConfig | None = None,
    ) -> list[Prediction]:
        require_count("batch_size", batch_size)
        name = task_name_of(self.config)
        if not name.startswith(kind):
            raise ValueError(
                f"The model was fine-tuned on {name}, but {method} is for another "
                "task; load a model that was fine-tuned on that."
            )
        task = finetuning_task(name, data or self.data, self.config)
        examples = [
            task.example_without_label(TableRow(row, f"text {number}"))
            for number, row in enumerate(rows)
        ]
        return predict_examples(task, self.params, self.tokenizer, examples, batch_size)
