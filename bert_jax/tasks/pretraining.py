"""Pretraining: masked LM and next sentence (Devlin et al. 2018, §3.1)."""

import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from bert_jax.config import PretrainConfig
from bert_jax.data.pipeline import host_share, row_numbers
from bert_jax.data.records import Dataset, columns
from bert_jax.flops import pretraining_flops
from bert_jax.losses import accuracy, cross_entropy
from bert_jax.masking import MaskedBatch, mask_tokens
from bert_jax.model.pretraining import BertForPretraining
from bert_jax.tasks.task import Batch, Sums, Task

_EVALUATION_KEY = 2018
"""The masks of the validation rows are the same in every evaluation of every run."""


def pretraining_losses(
    scores: tuple[Array, Array], masked: MaskedBatch, next_sentence_label: Array
) -> Sums:
    """Sums over the real predictions, and over the pairs that have a label."""
    token_scores, pair_scores = scores
    pair_weights = (next_sentence_label >= 0).astype(jnp.float32)
    pair_labels = jnp.maximum(next_sentence_label, 0).astype(jnp.int32)
    tokens = (token_scores, masked.labels, masked.weights)
    pairs = (pair_scores, pair_labels, pair_weights)
    return {
        "mlm_loss": cross_entropy(*tokens),
        "mlm_accuracy": accuracy(*tokens),
        "nsp_loss": cross_entropy(*pairs),
        "nsp_accuracy": accuracy(*pairs),
    }


def mask_for_evaluation(
    batch: dict[str, jax.Array], config: PretrainConfig
) -> MaskedBatch:
    """Masks that depend on the number of a row alone, not on its neighbours."""
    key = jax.random.key(_EVALUATION_KEY)

    def mask_one(row: dict[str, jax.Array]) -> MaskedBatch:
        one = {name: values[None] for name, values in row.items()}
        row_key = jax.random.fold_in(key, row["row"])
        masked = mask_tokens(row_key, one, config.masking)
        return jax.tree.map(lambda values: values[0], masked)

    return jax.vmap(mask_one)(batch)


def validation_batches(
    dataset: Dataset, batch_size: int, host_index: int, host_count: int
) -> Iterator[Batch]:
    """This host's share of the validation rows, once each, in batches of one shape.

    The last batch is filled up with rows without tokens, which count nowhere.
    """
    share = host_share(batch_size, host_index, host_count)
    for start in range(0, len(dataset.validation), batch_size):
        numbers = start + np.arange(batch_size)[share]
        real = numbers < len(dataset.validation)
        batch = columns(dataset.validation.gather(np.where(real, numbers, 0)))
        batch["end"][~real] = 0
        batch["next_sentence_label"][~real] = -1
        yield batch | {"row": numbers.astype(np.int32)}


def split_step_key(
    key: Key[Array, ""],
) -> tuple[Key[Array, ""], Key[Array, ""]]:
    """The keys of a step's masks and of its dropout."""
    mask_key, dropout_key = jax.random.split(key)
    return mask_key, dropout_key


def initial_params(model: BertForPretraining, key: Key[Array, ""]) -> Any:
    """Parameters drawn by `key`; their shapes do not depend on the inputs'."""
    one = jnp.zeros((1, 8), jnp.int32)
    return model.init(key, one, one, one > 0, one[:, :1], one[:, :1])["params"]


def model_sums(
    model: BertForPretraining,
    params: Any,
    rows: dict[str, jax.Array],
    masked: MaskedBatch,
    **dropout: Any,
) -> Sums:
    """The losses of masked rows under these parameters."""
    scores: Any = model.apply(
        {"params": params},
        masked.input_ids,
        masked.segment_ids,
        masked.attention_mask,
        masked.predicted,
        rows["first"].astype(jnp.int32),
        **dropout,
    )
    return pretraining_losses(scores, masked, rows["next_sentence_label"])


def pretraining_task(
    config: PretrainConfig, dataset: Dataset, host_index: int = 0, host_count: int = 1
) -> Task:
    """Pretraining on a prepared dataset.

    Args:
        config: with `masking.vocab_size` and `masking.mask_token_id` set.
    """
    model = BertForPretraining(config.model)
    size, length = config.batch_size, config.data.sequence_length
    share = host_share(size, host_index, host_count)

    def examples(step: int) -> np.ndarray:
        positions = (step - config.data.first_step) * size + np.arange(size)
        return row_numbers(len(dataset.train), config.seed, positions)

    def loss(params: Any, rows: dict[str, jax.Array], key: Key[Array, ""]) -> Sums:
        mask_key, dropout_key = split_step_key(key)
        masked = mask_tokens(mask_key, rows, config.masking)
        rngs = {"dropout": dropout_key}
        return model_sums(model, params, rows, masked, deterministic=False, rngs=rngs)

    return Task(
        model=model,
        initialise=functools.partial(initial_params, model),
        batch=lambda step: columns(dataset.train.gather(examples(step)[share])),
        examples=examples,
        loss=loss,
        evaluate=lambda params, rows: model_sums(
            model, params, rows, mask_for_evaluation(rows, config)
        ),
        evaluation_batches=functools.partial(
            validation_batches, dataset, size, host_index, host_count
        ),
        score=lambda means: (
            # Beyond e^700 a float has no room.
            means | {"mlm_perplexity": math.exp(min(means["mlm_loss"], 700.0))}
        ),
        objective=("mlm_loss", "nsp_loss"),
        tokens=lambda rows: int(rows["end"].max(axis=1).sum(dtype=np.int64)),
        flops_per_step=pretraining_flops(
            config.model, size, length, config.masking.max_predictions
        ),
    )
