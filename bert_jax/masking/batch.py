"""Random masking on the device (Devlin et al. 2018, §3.1, Task #1)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from bert_jax.config import MaskingConfig
from bert_jax.masking.units import (
    MaskedPositions,
    PRNGKey,
    choose_spans,
    choose_words,
    span_starts,
    word_starts,
)
from bert_jax.model.inputs import (
    DeviceRows,
    Inputs,
    inputs_of,
    maskable_tokens,
    tokens_after_first,
)

VocabularyTable = Bool[Array, " V"] | Bool[np.ndarray, " V"]


@struct.dataclass
class MaskedBatch:
    """Rows ready for the model: inputs with tokens replaced, and what to predict."""

    inputs: Inputs
    predicted: Int[Array, "*B P"] | None
    """Positions to predict; distinct. None: the token after each position."""
    labels: Int[Array, "*B P"]
    """The original tokens at these positions."""
    weights: Float[Array, "*B P"]
    """1 for a real prediction, 0 for an unused slot."""


def prediction_counts(sequence_length: int, masking: MaskingConfig) -> list[int]:
    """Return how many tokens to predict in a row of 0, 1, … `sequence_length` tokens.

    This is for `masking.rate`. It is a table, not arithmetic on the device, so that
    halves round as in Python.
    """
    limit = masking.num_slots(sequence_length)
    return [0] + [
        min(limit, max(1, round(masking.rate * length)))
        for length in range(1, sequence_length + 1)
    ]


def choose_tokens(
    key: PRNGKey, maskable: Bool[Array, "B T"], count: Int[Array, " B"], slots: int
) -> MaskedPositions:
    """Choose `count` maskable positions per row; every subset is equally probable."""
    # The top k of uniform noise are distinct.
    noise = jnp.where(maskable, jax.random.uniform(key, maskable.shape), -1.0)
    _, positions = jax.lax.top_k(noise, slots)
    used = jnp.arange(slots)[None] < jnp.minimum(count, maskable.sum(axis=1))[:, None]
    return positions, used, jnp.ones_like(used)


def choose_positions(
    key: PRNGKey,
    input_ids: Int[Array, "B T"],
    maskable: Bool[Array, "B T"],
    count: Int[Array, " B"],
    masking: MaskingConfig,
    continues_word: VocabularyTable | None,
) -> MaskedPositions:
    """Choose `count` positions to predict in each row, by tokens, whole words or spans.

    Return for each row and slot: the position to predict, distinct within a row, in
    unused slots too; whether the slot is used, the used ones first; and whether it
    leads: it samples the kind of its replacement ([MASK], random or kept). A slot that
    does not lead has the kind of the slot before it.
    """
    slots = masking.num_slots(input_ids.shape[1])
    if masking.unit == "token":
        return choose_tokens(key, maskable, count, slots)
    if continues_word is None:
        raise ValueError(
            f"masking.unit={masking.unit} needs continues_word, which is None; "
            "pass `Tokenizer.continues_word`."
        )
    words = word_starts(maskable, jnp.asarray(continues_word)[input_ids])
    if masking.unit == "whole_word":
        return choose_words(key, maskable, words, count, slots)
    cut_key, order_key = jax.random.split(key)
    starts = span_starts(
        cut_key, maskable, words, masking.span_probability, masking.max_span
    )
    return choose_spans(order_key, maskable, starts, count, slots)


def replacements(
    key: PRNGKey,
    labels: Int[Array, "B P"],
    leads: Bool[Array, "B P"],
    masking: MaskingConfig,
) -> Int[Array, "B P"]:
    """Return what to show instead of each label: [MASK], a random token, or itself."""
    if masking.vocab_size is None or masking.mask_token_id is None:
        raise ValueError(
            f"masking.vocab_size={masking.vocab_size} and masking.mask_token_id="
            f"{masking.mask_token_id}; set both, to those of the tokenizer."
        )
    kind_key, token_key = jax.random.split(key)
    # Slots of a word or span stand side by side, the one that leads first.
    leader = jax.lax.cummax(jnp.where(leads, jnp.arange(labels.shape[1]), 0), axis=1)
    kind = jax.random.uniform(kind_key, labels.shape)
    kind = jnp.take_along_axis(kind, leader, axis=1)
    random_tokens = jax.random.randint(
        token_key, labels.shape, 0, masking.vocab_size, labels.dtype
    )
    # One draw decides: below the first share [MASK], below both a random token.
    becomes_mask = kind < masking.mask_share
    becomes_other = kind < masking.mask_share + masking.random_share
    other = jnp.where(becomes_other, random_tokens, labels)
    return jnp.where(becomes_mask, masking.mask_token_id, other)


def mask_tokens(
    key: PRNGKey,
    batch: DeviceRows,
    masking: MaskingConfig,
    continues_word: VocabularyTable | None = None,
    counts: Int[Array, " lengths"] | None = None,
) -> MaskedBatch:
    """Mask a fraction of the tokens of each row, differently for every key.

    A row of n tokens has min(P, max(1, round(rate · n))) predictions, or all its tokens
    if they are fewer; an empty row has none. Whole words may give fewer, if no further
    word fits. In a row of several pairs n counts all of them, and each token has the
    same probability. Raise ValueError if an argument lacks what is required.

    Args:
        batch: rows with the fields of `data/records.py`, unmasked.
        masking: with `mask_token_id` and `vocab_size` set, as is required.
        continues_word: for each token of the vocabulary, whether it continues a word
            (`Tokenizer.continues_word`). Required unless the unit is token.
        counts: how many tokens to predict in a row of 0, 1, … T tokens, each at most P;
            `counts_at_step` returns them for `masking.final_rate`, which is not read
            here. None: those of `masking.rate`.
    """
    inputs = inputs_of(batch)
    if counts is None:
        counts = jnp.asarray(prediction_counts(inputs.input_ids.shape[1], masking))
    position_key, replacement_key = jax.random.split(key)
    positions, used, leads = choose_positions(
        position_key,
        inputs.input_ids,
        maskable_tokens(batch),
        counts[inputs.attention_mask.sum(1)],
        masking,
        continues_word,
    )
    labels = jnp.take_along_axis(inputs.input_ids, positions, axis=1)
    shown = replacements(replacement_key, labels, leads, masking)
    # An unused slot writes back the token that is already at its position.
    row = jnp.arange(labels.shape[0])[:, None]
    input_ids = inputs.input_ids.at[row, positions].set(jnp.where(used, shown, labels))
    return MaskedBatch(
        inputs=dataclasses.replace(inputs, input_ids=input_ids),
        predicted=positions,
        labels=labels,
        weights=used.astype(jnp.float32),
    )


def mask_by_row(
    key: PRNGKey,
    batch: dict[str, Array],
    masking: MaskingConfig,
    continues_word: VocabularyTable | None = None,
    counts: Int[Array, " lengths"] | None = None,
) -> MaskedBatch:
    """Mask each row by a key folded from its number `row`.

    A row's mask does not depend on its neighbours, so that each device masks its own.
    """

    def mask_one(row: dict[str, Array]) -> MaskedBatch:
        one = {name: values[None] for name, values in row.items()}
        # The number in the global batch, which is the same however it is sharded.
        row_key = jax.random.fold_in(key, row["row"])
        masked = mask_tokens(row_key, one, masking, continues_word, counts)
        return jax.tree.map(lambda values: values[0], masked)

    return jax.vmap(mask_one)(batch)


def next_tokens(batch: DeviceRows) -> MaskedBatch:
    """Return rows whose every token but the first of its pair is to be predicted.

    No token is replaced: the model must have causal attention. The label of position t
    is the token at t + 1.
    """
    inputs = inputs_of(batch)
    return MaskedBatch(
        inputs=inputs,
        predicted=None,
        labels=inputs.input_ids[:, 1:],
        weights=tokens_after_first(batch)[:, 1:].astype(jnp.float32),
    )
