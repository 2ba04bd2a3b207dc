"""Pretraining: masked LM and next sentence (Devlin et al. 2018, §3.1)."""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Int, Key

from bert_jax.config import MaskingConfig, PretrainConfig
from bert_jax.data.pipeline import host_slice, row_numbers
from bert_jax.data.records import Dataset, columns
from bert_jax.masking.batch import MaskedBatch, mask_tokens
from bert_jax.model.flops import pretraining_flops
from bert_jax.model.losses import accuracy, cross_entropy
from bert_jax.model.pretraining import BertForPretraining
from bert_jax.tasks.task import Batch, Counts, Sums, Task

_EVALUATION_KEY = 2018
"""The masks of the validation rows are the same in every evaluation of every run."""


@struct.dataclass
class DrawnRows:
    """What the losses are taken of."""

    masked: MaskedBatch
    first: Int[Array, "*B K"]
    """Where each pair's [CLS] stands."""
    pair_labels: Int[Array, "*B K"]
    """As in the row; -1: none."""


def pretraining_losses(
    scores: tuple[Array, Array], rows: DrawnRows, pairs: str
) -> Sums:
    """Sums over the real predictions, and over the pairs that have a label.

    Args:
        pairs: nsp, sop or none: what the names of the latter begin with.
    """
    token_scores, pair_scores = scores
    tokens = (token_scores, rows.masked.labels, rows.masked.weights)
    sums = {"mlm_loss": cross_entropy(*tokens), "mlm_accuracy": accuracy(*tokens)}
    if pairs != "none":
        weights = (rows.pair_labels >= 0).astype(jnp.float32)
        labelled = (pair_scores, jnp.maximum(rows.pair_labels, 0), weights)
        sums[f"{pairs}_loss"] = cross_entropy(*labelled)
        sums[f"{pairs}_accuracy"] = accuracy(*labelled)
    return sums


def word_table(
    masking: MaskingConfig, dataset: Dataset
) -> Bool[np.ndarray, " V"] | None:
    """Which tokens continue a word, where the masks ask for it."""
    return None if masking.unit == "token" else dataset.tokenizer.continues_word


def mask_by_row(
    key: Key[Array, ""],
    batch: dict[str, jax.Array],
    masking: MaskingConfig,
    continues_word: Bool[np.ndarray, " V"] | None = None,
) -> MaskedBatch:
    """Masks that depend on the key and on `row`, the number of a row, alone.

    Not on its neighbours: a device draws those of its rows without the others.
    """

    def mask_one(row: dict[str, jax.Array]) -> MaskedBatch:
        one = {name: values[None] for name, values in row.items()}
        row_key = jax.random.fold_in(key, row["row"])
        masked = mask_tokens(row_key, one, masking, continues_word)
        return jax.tree.map(lambda values: values[0], masked)

    return jax.vmap(mask_one)(batch)


def mask_for_evaluation(
    batch: dict[str, jax.Array],
    masking: MaskingConfig,
    continues_word: Bool[np.ndarray, " V"] | None = None,
) -> MaskedBatch:
    """The masks of validation rows, always the same."""
    key = jax.random.key(_EVALUATION_KEY)
    return mask_by_row(key, batch, masking, continues_word)


def validation_batches(
    dataset: Dataset,
    batch_size: int,
    host_index: int,
    host_count: int,
    most_rows: int = 0,
) -> Iterator[Batch]:
    """This host's share of the validation rows, once each, in batches of one shape.

    The last batch is filled up with rows without tokens, which count nowhere.

    Args:
        most_rows: take so many at most, the first ones; 0: all.
    """
    share = host_slice(batch_size, host_index, host_count)
    number = min(len(dataset.validation), most_rows or len(dataset.validation))
    for start in range(0, number, batch_size):
        numbers = start + np.arange(batch_size)[share]
        real = numbers < number
        batch = columns(dataset.validation.gather(np.where(real, numbers, 0)))
        batch["end"][~real] = 0
        batch["next_sentence_label"][~real] = -1
        yield batch | {"row": numbers.astype(np.int32)}


def initial_params(model: BertForPretraining, key: Key[Array, ""]) -> Any:
    """Parameters drawn by `key`; their shapes do not depend on the inputs'."""
    one = jnp.zeros((1, 8), jnp.int32)
    return model.init(key, one, one, one > 0, one[:, :1], one[:, :1])["params"]


def apply_model(
    model: BertForPretraining, params: Any, rows: DrawnRows, **dropout: Any
) -> tuple[Array, Array]:
    """The model's scores of tokens and of pairs."""
    masked = rows.masked
    scores: Any = model.apply(
        {"params": params},
        masked.input_ids,
        masked.segment_ids,
        masked.attention_mask,
        masked.predicted,
        rows.first,
        pairs=masked.pairs,
        **dropout,
    )
    return scores


@dataclasses.dataclass(frozen=True)
class Objective:
    """What pretraining learns: masked tokens, and what the dataset's pairs teach."""

    model: BertForPretraining
    masking: MaskingConfig
    pairs: str
    words: Bool[np.ndarray, " V"] | None
    """Which tokens continue a word."""

    @property
    def names(self) -> tuple[str, ...]:
        """The losses that are added up."""
        return ("mlm_loss",) + (f"{self.pairs}_loss",) * (self.pairs != "none")

    def draw(
        self, rows: dict[str, jax.Array], key: Key[Array, ""]
    ) -> tuple[DrawnRows, Counts]:
        """Rows with masks drawn by `key`, and the counts of the losses."""
        masked = mask_by_row(key, rows, self.masking, self.words)
        drawn = self._with_pairs(masked, rows)
        counts = {"mlm_loss": masked.weights.sum()}
        if self.pairs != "none":
            labelled = (drawn.pair_labels >= 0).sum(dtype=jnp.float32)
            counts[f"{self.pairs}_loss"] = labelled
        return drawn, counts

    def loss(self, params: Any, rows: DrawnRows, key: Key[Array, ""]) -> Sums:
        """The sums over drawn rows, with dropout by `key`."""
        dropout = {"deterministic": False, "rngs": {"dropout": key}}
        scores = apply_model(self.model, params, rows, **dropout)
        return pretraining_losses(scores, rows, self.pairs)

    def evaluate(
        self, params: Any, rows: dict[str, jax.Array]
    ) -> tuple[Sums, dict[str, jax.Array]]:
        """The sums over rows under masks that are always the same, and no more."""
        masked = mask_for_evaluation(rows, self.masking, self.words)
        drawn = self._with_pairs(masked, rows)
        scores = apply_model(self.model, params, drawn)
        return pretraining_losses(scores, drawn, self.pairs), {}

    def _with_pairs(self, masked: MaskedBatch, rows: dict[str, jax.Array]) -> DrawnRows:
        first, labels = rows["first"], rows["next_sentence_label"]
        return DrawnRows(masked, first.astype(jnp.int32), labels.astype(jnp.int32))


def with_perplexity(means: dict[str, float], _: list[Batch]) -> dict[str, float]:
    """The means, and the perplexity of masks; past e^700 a float has no room."""
    return means | {"mlm_perplexity": math.exp(min(means["mlm_loss"], 700.0))}


def pretraining_task(
    config: PretrainConfig, dataset: Dataset, host_index: int = 0, host_count: int = 1
) -> Task:
    """Pretraining on a prepared dataset.

    Args:
        config: with `data.pairs`, `masking.vocab_size` and `masking.mask_token_id` set.
    """
    model = BertForPretraining(config.model)
    size, length = config.batch_size, config.data.sequence_length
    host = host_index, host_count
    share = host_slice(size, *host)
    words = word_table(config.masking, dataset)
    objective = Objective(model, config.masking, config.data.pairs, words)

    def examples(step: int) -> np.ndarray:
        positions = (step - config.data.first_step) * size + np.arange(size)
        return row_numbers(len(dataset.train), config.seed, positions)

    def batch(step: int) -> Batch:
        rows = columns(dataset.train.gather(examples(step)[share]))
        return rows | {"row": np.arange(size, dtype=np.int32)[share]}

    flops = pretraining_flops(
        config.model, size, length, config.masking.max_predictions
    )
    return Task(
        initialise=functools.partial(initial_params, model),
        batch=batch,
        examples=examples,
        draw=objective.draw,
        loss=objective.loss,
        evaluate=objective.evaluate,
        evaluation_batches=functools.partial(
            validation_batches, dataset, config.microbatch_size, *host, config.eval_rows
        ),
        score=with_perplexity,
        selection_score=lambda scores: -scores["loss"],
        objective=objective.names,
        tokens=lambda rows: int(rows["end"].max(axis=1).sum(dtype=np.int64)),
        flops=lambda _: flops,
    )
