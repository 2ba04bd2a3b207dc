"""What a prepared row means to the model, worked out on the device.

A row stores its tokens and, for each pair in it, where the pair begins, where its
second segment begins, and where it ends (`data/records.py`). All else follows.
"""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Int, Integer


@struct.dataclass
class Inputs:
    """What the encoder takes, beside which tokens may be masked."""

    input_ids: Int[Array, "B T"]
    segment_ids: Int[Array, "B T"]
    attention_mask: Bool[Array, "B T"]
    maskable: Bool[Array, "B T"]
    """Real tokens other than [CLS] and [SEP]."""
    length: Int[Array, " B"]
    """Real tokens a row, [CLS] and [SEP] among them."""
    pairs: Int[Array, "B T"] | None
    """Of each token the number of its pair, from 1 on, and 0 on padding; None where a
    row has room for a single pair."""


def inputs_of(
    batch: Mapping[str, Integer[Array, "B ..."] | Integer[np.ndarray, "B ..."]],
) -> Inputs:
    """Unfold rows with the fields `tokens`, `first`, `second` and `end`.

    A pair is [CLS] A [SEP] B [SEP]: specials stand at `first`, `second` - 1 and
    `end` - 1. A pair with `end` 0 is absent.
    """
    tokens = jnp.asarray(batch["tokens"], jnp.int32)
    first, second, end = (
        jnp.asarray(batch[name], jnp.int32)[:, :, None]
        for name in ("first", "second", "end")
    )
    position = jnp.arange(tokens.shape[1])
    inside = (position >= first) & (position < end)
    special = (position == first) | (position == second - 1) | (position == end - 1)
    number = jnp.arange(1, inside.shape[1] + 1)[:, None]
    return Inputs(
        input_ids=tokens,
        segment_ids=(inside & (position >= second)).any(1).astype(jnp.int32),
        attention_mask=inside.any(1),
        maskable=(inside & ~special).any(1),
        length=inside.sum((1, 2)),
        pairs=(inside * number).sum(1) if len(number) > 1 else None,
    )


def padded_rows(
    rows: Sequence[tuple[list[int], int]], shape: tuple[int, int], pad_id: int
) -> tuple[Int[np.ndarray, "B T"], Int[np.ndarray, "B T"], Bool[np.ndarray, "B T"]]:
    """Ids, segments and mask of some rows, and of empty ones up to `shape`.

    Args:
        rows: the ids of each, and where its second segment begins.
    """
    input_ids = np.full(shape, pad_id, np.int32)
    segment_ids = np.zeros(shape, np.int32)
    attention_mask = np.zeros(shape, bool)
    for i, (ids, boundary) in enumerate(rows):
        input_ids[i, : len(ids)] = ids
        segment_ids[i, boundary : len(ids)] = 1
        attention_mask[i, : len(ids)] = True
    return input_ids, segment_ids, attention_mask
