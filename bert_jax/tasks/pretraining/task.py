"""Pretraining: masked LM and next sentence (Devlin et al. 2018, §3.1), or causal LM.

The baseline predicts each token by its frequency in the training rows. It is scored on
the same tokens of the validation rows as the model.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.config import BertConfig, PretrainConfig
from bert_jax.config.model import Params
from bert_jax.data.batches import DatasetBatches
from bert_jax.data.pipeline import Batch
from bert_jax.data.records import Dataset, columns
from bert_jax.masking.batch import (
    MaskedBatch,
    mask_by_row,
    next_tokens,
    prediction_counts,
)
from bert_jax.masking.rate_schedule import counts_at_step
from bert_jax.masking.units import unreachable_share
from bert_jax.model.bert import compute, init_params
from bert_jax.model.flops import pretraining_flops
from bert_jax.model.inputs import (
    DeviceRows,
    inputs_of,
    maskable_tokens,
    tokens_after_first,
)
from bert_jax.model.losses import (
    accuracy,
    accuracy_with_ties,
    cross_entropy,
    weighted_sum,
)
from bert_jax.tasks.distillation import DISTILLATION_LOSS, TEACHER, Teacher, distil
from bert_jax.tasks.task import NO_WEIGHTS, Counts, DeviceBatch, Evaluation, Sums, Task

_EVALUATION_KEY = 2018
"""Validation rows have the same masks in every evaluation of every run."""
_MAX_EXPONENT = 700.0  # e^710 exceeds a float
_BASELINE_ROWS, _CHUNK_ROWS = 1_000_000, 8192
_ROWS_EXAMINED, _MAX_UNREACHABLE = 256, 0.2


@struct.dataclass
class PretrainingBatch:
    """Masked rows, and the labels of their pairs."""

    masked: MaskedBatch
    first: Int[Array, "*B K"]
    """The position of each pair's [CLS]."""
    pair_labels: Int[Array, "*B K"]
    """As in the row; -1: none."""


def pretraining_losses(
    scores: tuple[Array, Array],
    batch: PretrainingBatch,
    pair_objective: str,
    token_objective: str = "mlm",
) -> Sums:
    """Return sums over the real predictions, and over the labelled pairs.

    Args:
        scores: of tokens [B, P, V] and of pairs [B, K, 2].
        pair_objective: nsp, sop or none; the prefix of the names of the pairs' sums.
        token_objective: mlm or clm; the prefix of the names of the tokens' sums.
    """
    token_scores, pair_scores = scores
    labels, weights = batch.masked.labels, batch.masked.weights
    sums = {
        f"{token_objective}_loss": cross_entropy(token_scores, labels, weights),
        f"{token_objective}_accuracy": accuracy_with_ties(
            token_scores, labels, weights
        ),
    }
    if pair_objective != "none":
        weights = (batch.pair_labels >= 0).astype(jnp.float32)
        labels = jnp.maximum(batch.pair_labels, 0)
        sums[f"{pair_objective}_loss"] = cross_entropy(pair_scores, labels, weights)
        sums[f"{pair_objective}_accuracy"] = accuracy(pair_scores, labels, weights)
    return sums


def pretraining_scores(
    model: BertConfig,
    params: Params,
    batch: PretrainingBatch,
    dropout_key: Key[Array, ""] | None = None,
) -> tuple[Array, Array]:
    """Return the model's scores of the tokens to predict, and of the pairs."""
    masked = batch.masked
    rows = (masked.inputs, masked.predicted, batch.first)
    return compute(model, params, "pretraining_scores", *rows, dropout_key=dropout_key)


@final
@dataclasses.dataclass(frozen=True)
class PretrainingTask(Task):
    """Masked or causal LM and the objective of the dataset's pairs, on a host's shard.

    With a teacher, what it computes of the same rows is learned, too.

    `config` needs `data.pairs`, `masking.vocab_size` and `masking.mask_token_id`.
    """

    config: PretrainConfig
    dataset: Dataset
    host_index: int = 0
    host_count: int = 1
    teacher: Teacher | None = None

    takes_sharded_kernels = True

    @property
    def is_causal(self) -> bool:
        """Whether each token is predicted from those before it."""
        return self.config.objective == "causal_lm"

    @property
    def token_objective(self) -> str:
        """mlm or clm, the prefix of the scores of tokens."""
        return "clm" if self.is_causal else "mlm"

    @property
    def pair_objective(self) -> str:
        """What is learned from pairs: nsp, sop or none."""
        return self.config.data.pairs if self.config.pair_loss else "none"

    @property
    def label_losses(self) -> tuple[str, ...]:
        """The losses on the tokens to predict, and on the labels of pairs."""
        tokens, pairs = f"{self.token_objective}_loss", self.pair_objective
        return (tokens,) if pairs == "none" else (tokens, f"{pairs}_loss")

    @property
    def objective(self) -> tuple[str, ...]:
        """The losses that are added up."""
        if self.teacher is None:
            return self.label_losses
        labels = self.label_losses if self.config.distillation.label_weight else ()
        return (*labels, DISTILLATION_LOSS)

    @property
    def weights(self) -> Mapping[str, float]:
        if self.teacher is None:
            return NO_WEIGHTS
        weight = self.config.distillation.label_weight
        return dict.fromkeys(self.label_losses, weight)

    @property
    def fixed_params(self) -> Params:
        return {} if self.teacher is None else {TEACHER: self.teacher.params}

    @functools.cached_property
    def batches(self) -> DatasetBatches:  # type: ignore[override]
        c = self.config
        return DatasetBatches(
            self.dataset,
            c.batch_size,
            c.seed,
            c.data.first_step,
            self.host_index,
            self.host_count,
        )

    def init_params(self, key: Key[Array, ""]) -> Params:
        return init_params(self.config.model, key)

    def corrupt(self, batch: DeviceBatch, key: Key[Array, ""]) -> PretrainingBatch:
        """Mask the rows by `key`, at the rate `masking.rate`."""
        return self._mask(batch, key)

    def corrupt_at_step(
        self, batch: DeviceBatch, key: Key[Array, ""], step: Int[Array, ""]
    ) -> PretrainingBatch:
        """Mask the rows by `key`, at the rate of a step."""
        c = self.config
        if c.masking.final_rate is None:
            return self._mask(batch, key)
        run = range(c.data.first_step, c.num_steps)
        length = batch["tokens"].shape[-1]
        return self._mask(batch, key, counts_at_step(step, length, c.masking, run))

    def _mask(
        self,
        batch: DeviceBatch,
        key: Key[Array, ""],
        counts: Int[Array, " lengths"] | None = None,
    ) -> PretrainingBatch:
        masking, words = self.config.masking, None
        if masking.unit != "token":
            words = self.dataset.tokenizer.continues_word
        if self.is_causal:
            masked = next_tokens(batch)
        else:
            masked = mask_by_row(key, batch, masking, words, counts)
        first = batch["first"].astype(jnp.int32)
        pair_labels = batch["next_sentence_label"].astype(jnp.int32)
        return PretrainingBatch(masked, first, pair_labels)

    def mask_for_evaluation(self, batch: DeviceBatch) -> PretrainingBatch:
        """Mask validation rows, always in the same way, at the rate `masking.rate`."""
        return self.corrupt(batch, jax.random.key(_EVALUATION_KEY))

    def count(self, batch: PretrainingBatch) -> Counts:
        """Count the predictions, the labelled pairs and, with a teacher, the rows."""
        pairs = (batch.pair_labels >= 0).sum(dtype=jnp.float32)
        by_label = (batch.masked.weights.sum(), pairs)
        counts = dict(zip(self.label_losses, by_label, strict=False))
        if self.teacher is not None:
            real_rows = batch.masked.inputs.attention_mask.any(-1)
            counts[DISTILLATION_LOSS] = real_rows.sum(dtype=jnp.float32)
        return {name: counts[name] for name in self.objective if name in counts}

    def loss(
        self, params: Params, batch: PretrainingBatch, key: Key[Array, ""]
    ) -> Sums:
        return self._losses(params, batch, key)

    def _losses(
        self,
        params: Params,
        batch: PretrainingBatch,
        dropout_key: Key[Array, ""] | None = None,
    ) -> Sums:
        distances = {}
        if self.teacher is None:
            model = self.config.model
            scores = pretraining_scores(model, params, batch, dropout_key)
        else:
            scores, distance = distil(
                self.config,
                self.teacher,
                params,
                batch.masked,
                batch.first,
                dropout_key,
            )
            distances = {DISTILLATION_LOSS: distance}
        pairs, tokens = self.pair_objective, self.token_objective
        return pretraining_losses(scores, batch, pairs, tokens) | distances

    def evaluate(
        self, params: Params, batch: DeviceBatch
    ) -> tuple[Sums, dict[str, jax.Array]]:
        """Evaluate as in `Task.evaluate`; the masks are always the same."""
        rows = self.mask_for_evaluation(batch)
        sums = self._losses(params, rows)
        if self.is_causal:
            sizes = jnp.asarray(self.dataset.tokenizer.num_bytes, jnp.float32)
            labels, weights = rows.masked.labels, rows.masked.weights
            sums["bytes_per_token"] = weighted_sum(sizes[labels], weights)
        return sums, {}

    def evaluation_batches(self) -> Iterator[Batch]:
        batch_size, max_rows = self.config.microbatch_size, self.config.eval_rows
        return self.batches.validation(batch_size, max_rows)

    def score(self, evaluation: Evaluation) -> dict[str, float]:
        """Return the means, and the perplexity; for a causal LM also bits per byte."""
        means, name = evaluation.means, self.token_objective
        loss = means[f"{name}_loss"]
        scores = {f"{name}_perplexity": math.exp(min(loss, _MAX_EXPONENT))}
        if self.is_causal:
            bits_per_token = loss / math.log(2)
            scores["bits_per_byte"] = bits_per_token / means["bytes_per_token"]
        return means | scores

    def flops(self, batch: Batch) -> float:
        c, length = self.config, batch["tokens"].shape[-1]
        num_predictions = length - 1 if self.is_causal else c.masking.num_slots(length)
        shape = c.batch_size, length, num_predictions
        flops = pretraining_flops(c.model, *shape)
        if self.teacher is not None:  # forward only: a third
            flops += pretraining_flops(self.teacher.config, *shape) / 3
        return flops


def require_words(config: PretrainConfig, dataset: Dataset) -> None:
    """Raise ValueError if many tokens are in words of more tokens than are predicted.

    In text without spaces, a word may be a whole sentence; a vocabulary that does not
    tell where words start is refused. Nothing is checked where no words are masked.
    """
    if config.masking.unit == "token" or config.objective != "masked_lm":
        return
    if not (tokenizer := dataset.tokenizer).marks_starts:
        marks = (
            "marks where words end, not" if tokenizer.marks_ends else "does not tell"
        )
        raise ValueError(
            f"masking.unit={config.masking.unit} masks whole words, but the vocabulary "
            f"of {dataset.path} {marks} where they start; use masking.unit=token."
        )
    numbers = np.arange(min(len(dataset.train), _ROWS_EXAMINED))
    rows = columns(dataset.train.gather(numbers))
    continues = tokenizer.continues_word[rows["tokens"]]
    counts = prediction_counts(dataset.sequence_length, config.masking)
    count = jnp.asarray(counts)[inputs_of(rows).attention_mask.sum(1)]
    share = unreachable_share(maskable_tokens(rows), jnp.asarray(continues), count)
    if share > _MAX_UNREACHABLE:
        raise ValueError(
            f"masking.unit={config.masking.unit} masks whole words, but {share:.0%} of "
            f"the tokens of {dataset.path} are in words longer than the predictions of "
            "a row: the vocabulary does not mark where words start, or the text has no "
            "spaces; use masking.unit=token."
        )


def log_frequencies(
    dataset: Dataset,
    vocab_size: int,
    predictable: Callable[[DeviceRows], Bool[Array, "B T"]] = maskable_tokens,
) -> Float[np.ndarray, " V"]:
    """Return the log frequency of each token among the predictable training tokens.

    Each count is increased by one, so that no token has probability 0. Only the first
    million rows of a large dataset are counted; rows are stored in random order.
    """
    counts = np.ones(vocab_size, np.int64)
    num_rows = min(len(dataset.train), _BASELINE_ROWS)
    select = jax.jit(predictable)
    for start in range(0, num_rows, _CHUNK_ROWS):
        stop = min(start + _CHUNK_ROWS, num_rows)
        rows = columns(dataset.train.gather(np.arange(start, stop, dtype=np.int64)))
        tokens = rows["tokens"][np.asarray(select(rows))]
        counts += np.bincount(tokens, minlength=vocab_size)
    return np.log(counts / counts.sum()).astype(np.float32)


def unigram_baseline(config: PretrainConfig, dataset: Dataset) -> dict[str, float]:
    """Return `unigram_loss` in nats and `unigram_accuracy` over the predicted tokens.

    For a causal LM also `unigram_bits_per_byte`. `config` must have
    `masking.vocab_size` and `masking.mask_token_id`.
    """
    task = PretrainingTask(config, dataset)
    predictable = tokens_after_first if task.is_causal else maskable_tokens
    scores = log_frequencies(dataset, config.model.vocab_size, predictable)
    most_frequent = scores.argmax()
    mask = jax.jit(lambda batch: task.mask_for_evaluation(batch).masked)
    loss = hits = count = num_bytes = 0.0
    for batch in task.batches.validation(config.batch_size, config.eval_rows):
        masked = mask(batch)
        labels = np.asarray(masked.labels)[np.asarray(masked.weights) > 0]
        loss -= scores[labels].sum(dtype=np.float64)
        hits += (labels == most_frequent).sum()
        count += len(labels)
        num_bytes += dataset.tokenizer.num_bytes[labels].sum(dtype=np.float64)
    baseline = {"unigram_loss": loss / count, "unigram_accuracy": hits / count}
    if task.is_causal:
        baseline["unigram_bits_per_byte"] = loss / math.log(2) / num_bytes
    return baseline
