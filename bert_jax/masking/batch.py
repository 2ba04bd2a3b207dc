"""Masked-LM inputs, drawn on the device (Devlin et al. 2018, §3.1, Task #1)."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Integer

from bert_jax.config import MaskingConfig
from bert_jax.masking.units import (
    MaskedPositions,
    PRNGKey,
    choose_spans,
    choose_tokens,
    choose_words,
    span_starts,
    word_starts,
)
from bert_jax.model.inputs import Inputs, inputs_of

VocabularyTable = Bool[Array, " V"] | Bool[np.ndarray, " V"]


@struct.dataclass
class MaskedBatch:
    """Rows ready for the model: inputs with masks in them, and what was under those."""

    input_ids: Int[Array, "*B T"]
    segment_ids: Int[Array, "*B T"]
    attention_mask: Bool[Array, "*B T"]
    predicted: Int[Array, "*B P"]
    """Positions to predict; distinct."""
    labels: Int[Array, "*B P"]
    """The tokens that stood there."""
    weights: Float[Array, "*B P"]
    """1 for a real prediction, 0 for an unused slot."""
    pairs: Int[Array, "*B T"] | None = None
    """The number of each token's pair, where a row has room for several."""


def prediction_counts(sequence_length: int, masking: MaskingConfig) -> list[int]:
    """How many tokens to predict in a row of 0, 1, … `sequence_length` tokens.

    A table and not arithmetic on the device, so that halves round as in Python.
    """
    most = min(masking.max_predictions, sequence_length)
    return [0] + [
        min(most, max(1, round(masking.rate * length)))
        for length in range(1, sequence_length + 1)
    ]


def choose_positions(
    key: PRNGKey,
    inputs: Inputs,
    masking: MaskingConfig,
    continues_word: VocabularyTable | None,
) -> MaskedPositions:
    """The positions to predict, whichever unit they are chosen by."""
    length, maskable = inputs.input_ids.shape[1], inputs.maskable
    slots = min(masking.max_predictions, length)
    count = jnp.asarray(prediction_counts(length, masking))[inputs.length]
    if masking.unit == "token":
        return choose_tokens(key, maskable, count, slots)
    if continues_word is None:
        raise ValueError(
            f"masking.unit={masking.unit} needs continues_word, which is None; "
            "pass `Tokenizer.continues_word`."
        )
    words = word_starts(maskable, jnp.asarray(continues_word)[inputs.input_ids])
    if masking.unit == "whole_word":
        return choose_words(key, maskable, words, count, slots)
    cut_key, order_key = jax.random.split(key)
    chance, most = masking.span_probability, masking.max_span
    starts = span_starts(cut_key, maskable, words, chance, most)
    return choose_spans(order_key, maskable, starts, count, slots)


def replacements(
    key: PRNGKey,
    labels: Int[Array, "B P"],
    leads: Bool[Array, "B P"],
    masking: MaskingConfig,
) -> Int[Array, "B P"]:
    """What to show instead of each label: [MASK], any token, or itself.

    Args:
        leads: whether a slot draws which of the three, or has that of the slot before.
    """
    assert masking.vocab_size is not None and masking.mask_token_id is not None
    kind_key, token_key = jax.random.split(key)
    leader = jax.lax.cummax(jnp.where(leads, jnp.arange(labels.shape[1]), 0), axis=1)
    kind = jax.random.uniform(kind_key, labels.shape)
    kind = jnp.take_along_axis(kind, leader, axis=1)
    random_tokens = jax.random.randint(token_key, labels.shape, 0, masking.vocab_size)
    return jnp.where(
        kind < masking.mask_share,
        masking.mask_token_id,
        jnp.where(
            kind < masking.mask_share + masking.random_share, random_tokens, labels
        ),
    )


def mask_tokens(
    key: PRNGKey,
    batch: Mapping[str, Integer[Array, "B ..."] | Integer[np.ndarray, "B ..."]],
    masking: MaskingConfig,
    continues_word: VocabularyTable | None = None,
) -> MaskedBatch:
    """Hide a share of the tokens of each row, differently for every key.

    Args:
        batch: rows with the fields of `data/records.py`, unmasked.
        masking: with `mask_token_id` and `vocab_size` set.
        continues_word: of each id of the vocabulary, whether it continues a word that
            an earlier token began (`Tokenizer.continues_word`); unit token needs none.

    Returns:
        The masked rows. A row of n tokens is due min(P, max(1, round(rate · n)))
        predictions, none if it is empty. It has so many, or all its tokens; whole words
        may come to fewer, where no word left out fits into the rest. In a row of
        several pairs n counts all of them, and each token has the same chance.

    Raises:
        ValueError: `continues_word` is None, and the unit is another than token.
    """
    inputs = inputs_of(batch)
    position_key, replacement_key = jax.random.split(key)
    chosen = choose_positions(position_key, inputs, masking, continues_word)
    positions, used = chosen.positions, chosen.used
    labels = jnp.take_along_axis(inputs.input_ids, positions, axis=1)
    shown = replacements(replacement_key, labels, chosen.leads, masking)
    rows = jnp.arange(labels.shape[0])[:, None]
    return MaskedBatch(
        input_ids=inputs.input_ids.at[rows, positions].set(
            jnp.where(used, shown, labels)
        ),
        segment_ids=inputs.segment_ids,
        attention_mask=inputs.attention_mask,
        predicted=positions,
        labels=labels,
        weights=used.astype(jnp.float32),
        pairs=inputs.pairs,
    )
