"""Convert prepared rows to the encoder's inputs, on the device.

A row stores its tokens and, for each pair in it, where the pair begins, where its
second segment begins, and where it ends (`data/records.py`). The rest is derived here.
"""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Int, Integer

DeviceRows = Mapping[str, Integer[Array, "B ..."] | Integer[np.ndarray, "B ..."]]
"""Rows with the fields `tokens`, `first`, `second` and `end`."""


@struct.dataclass
class Inputs:
    """The inputs of the encoder."""

    input_ids: Int[Array, "*B T"]
    segment_ids: Int[Array, "*B T"]
    attention_mask: Bool[Array, "*B T"]
    """True for a real token, false for padding."""
    pair_ids: Int[Array, "*B T"] | None = None
    """The index of each token's pair, from 1, and 0 on padding. None if a row has room
    for one pair only."""


def _pair_bounds(
    rows: DeviceRows,
) -> tuple[Int[Array, "1 1 T"], Int[Array, "B K 1"], Int[Array, "B K 1"], Array]:
    """Return token positions, and `first`, `second`, `end` of each pair to compare."""
    first, second, end = (
        jnp.asarray(rows[name], jnp.int32)[:, :, None]
        for name in ("first", "second", "end")
    )
    return jnp.arange(rows["tokens"].shape[1])[None, None], first, second, end


def inputs_of(rows: DeviceRows) -> Inputs:
    """Return the encoder's inputs of prepared rows.

    A pair is [CLS] A [SEP] B [SEP], from `first` to before `end`; B starts at `second`.
    A pair with `end` 0 is absent.
    """
    position, first, second, end = _pair_bounds(rows)
    inside = (position >= first) & (position < end)  # [B, K, T]
    num_pairs = inside.shape[1]
    pair_id = jnp.arange(1, num_pairs + 1)[None, :, None]
    return Inputs(
        input_ids=jnp.asarray(rows["tokens"], jnp.int32),
        segment_ids=(inside & (position >= second)).any(1).astype(jnp.int32),
        attention_mask=inside.any(1),
        pair_ids=(inside * pair_id).sum(1) if num_pairs > 1 else None,
    )


def maskable_tokens(rows: DeviceRows) -> Bool[Array, "B T"]:
    """Return which tokens may be masked: real ones other than [CLS] and [SEP]."""
    position, first, second, end = _pair_bounds(rows)
    inside = (position >= first) & (position < end)
    special = (position == first) | (position == second - 1) | (position == end - 1)
    return (inside & ~special).any(1)


def tokens_after_first(rows: DeviceRows) -> Bool[Array, "B T"]:
    """Return which tokens have another before them in their pair: all but [CLS]."""
    position, first, _, end = _pair_bounds(rows)
    return ((position > first) & (position < end)).any(1)


def inputs_of_tokenized(batch: DeviceRows) -> Inputs:
    """Return the encoder's inputs of a batch that `TokenizedExamples.gather` made.

    Each choice of a batch with choices [B, C, T] becomes a row of its own.
    """
    tokens = batch["tokens"]
    end = jnp.asarray(batch["end"]).reshape(-1, 1)
    return inputs_of(
        {
            "tokens": tokens.reshape(-1, tokens.shape[-1]),
            "first": jnp.zeros_like(end),
            "second": batch["second"].reshape(-1, 1),
            "end": end,
        }
    )
