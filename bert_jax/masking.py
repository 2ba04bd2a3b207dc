"""Masked-LM inputs, drawn on the device (Devlin et al. 2018, §3.1, Task #1)."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Integer, Key, UInt32

from bert_jax.config import MaskingConfig
from bert_jax.rows import inputs_of

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1


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
    key: Key[Array, ""] | UInt32[Array, "2"],
    maskable: Bool[Array, "B T"],
    count: Int[Array, " B"],
    slots: int,
) -> tuple[Int[Array, "B P"], Bool[Array, "B P"]]:
    """`count` of the maskable positions, each set equally likely; which slots are used.

    The exact top of uniform noise: distinct by construction.
    """
    noise = jnp.where(maskable, jax.random.uniform(key, maskable.shape), -1.0)
    _, positions = jax.lax.top_k(noise, slots)
    count = jnp.minimum(count, maskable.sum(1))
    return positions, jnp.arange(slots) < count[:, None]


def replacements(
    key: Key[Array, ""] | UInt32[Array, "2"],
    labels: Int[Array, "B P"],
    masking: MaskingConfig,
) -> Int[Array, "B P"]:
    """What to show instead of each label: 80 % [MASK], 10 % any token, 10 % itself."""
    assert masking.vocab_size is not None and masking.mask_token_id is not None
    kind_key, token_key = jax.random.split(key)
    kind = jax.random.uniform(kind_key, labels.shape)
    random_tokens = jax.random.randint(token_key, labels.shape, 0, masking.vocab_size)
    return jnp.where(
        kind < MASK_SHARE,
        masking.mask_token_id,
        jnp.where(kind < MASK_SHARE + RANDOM_SHARE, random_tokens, labels),
    )


def mask_tokens(
    key: Key[Array, ""] | UInt32[Array, "2"],
    batch: Mapping[str, Integer[Array, "B ..."] | Integer[np.ndarray, "B ..."]],
    masking: MaskingConfig,
) -> MaskedBatch:
    """Hide a share of the tokens of each row, differently for every key.

    Args:
        batch: rows with the fields of `data/records.py`, unmasked.
        masking: with `mask_token_id` and `vocab_size` set.

    Returns:
        The masked rows. A row of n tokens has min(P, max(1, round(rate · n)))
        predictions, or none if it is empty.
    """
    inputs = inputs_of(batch)
    slots = min(masking.max_predictions, inputs.input_ids.shape[1])
    counts = np.array(prediction_counts(inputs.input_ids.shape[1], masking))
    position_key, replacement_key = jax.random.split(key)
    positions, used = choose_positions(
        position_key, inputs.maskable, jnp.asarray(counts)[inputs.length], slots
    )
    labels = jnp.take_along_axis(inputs.input_ids, positions, axis=1)
    shown = jnp.where(used, replacements(replacement_key, labels, masking), labels)
    rows = jnp.arange(labels.shape[0])[:, None]
    return MaskedBatch(
        input_ids=inputs.input_ids.at[rows, positions].set(shown),
        segment_ids=inputs.segment_ids,
        attention_mask=inputs.attention_mask,
        predicted=positions,
        labels=labels,
        weights=used.astype(jnp.float32),
    )
