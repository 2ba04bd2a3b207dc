"""Self-attention of all heads: which keys are visible, and the kernel that computes it.

Vaswani et al. 2017, §3.2. Queries, keys and values have their heads side by side.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from bert_jax.config import BertConfig
from bert_jax.config.checks import require
from bert_jax.model.layers import target_device


@struct.dataclass
class Visibility:
    """Which of S keys each of T tokens may attend to: real ones; if causal, none later.

    S is T, unless the keys of the tokens before are cached.
    """

    attention_mask: Bool[Array, "B S"]
    """True for a real token."""
    pair_ids: Int[Array, "B S"] | None = None
    """The index of each token's pair: only keys of the same pair are visible."""
    causal: bool = struct.field(pytree_node=False, default=False)
    num_cached: Int[Array, ""] | None = None
    """The number of tokens before these, whose keys and values are in a cache of S
    places; None: no cache."""

    def matrix(self) -> Bool[Array, "B #T S"]:
        """Return for each token whether it may attend to each key."""
        visible = self.attention_mask[:, None, :]
        if self.num_cached is not None:  # of one token
            place = jnp.arange(visible.shape[-1])[None, None]
            return visible & (place <= self.num_cached)
        if self.pair_ids is not None:
            visible = visible & (self.pair_ids[:, :, None] == self.pair_ids[:, None, :])
        if self.causal:
            length = self.attention_mask.shape[1]
            visible = visible & jnp.tril(jnp.ones((1, length, length), bool))
        return visible


def attention_probabilities(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S N H"],
    visible: Bool[Array, "B #T S"],
) -> Float[Array, "B N T S"]:
    """Return the attention probabilities of each token over the keys, in float32.

    Hidden keys get the lowest finite score and not minus infinity, so that a row
    without any visible key attends evenly instead of giving NaN.
    """
    query, key = query.swapaxes(1, 2), key.swapaxes(1, 2)
    dtype = jnp.promote_types(query.dtype, jnp.float32)
    scores = jnp.einsum("BNTH,BNSH->BNTS", query, key, preferred_element_type=dtype)
    scores = scores / jnp.sqrt(query.shape[-1]).astype(dtype)
    lowest = jnp.finfo(jnp.float32).min
    return jax.nn.softmax(jnp.where(visible[:, None], scores, lowest), axis=-1)


def plain_attention(
    query: Float[Array, "B T D"],
    key: Float[Array, "B S D"],
    value: Float[Array, "B S D"],
    visibility: Visibility,
    num_heads: int,
    dropout: Callable[[Float[Array, "B N T S"]], Float[Array, "B N T S"]],
) -> Float[Array, "B T D"]:
    """Return attention by matrix products, with all probabilities in memory.

    Dropout is of the probabilities.
    """
    shape = query.shape
    split = (num_heads, shape[2] // num_heads)  # -1 would not do for no rows
    query, key, value = (
        heads.reshape(*heads.shape[:2], *split) for heads in (query, key, value)
    )
    probabilities = attention_probabilities(query, key, visibility.matrix())
    probabilities = dropout(probabilities).astype(value.dtype)
    mixed = jnp.einsum("BNTS,BNSH->BNTH", probabilities, value.swapaxes(1, 2))
    return mixed.swapaxes(1, 2).reshape(shape)


def chosen_kernel(
    config: BertConfig, length: int, deterministic: bool
) -> Literal["plain", "tpu", "cudnn"]:
    """Return the kernel for rows of this length on the device that is traced for.

    Raise ValueError if cuDNN's kernel would have to drop probabilities, or it has none
    for this number of tokens or this width of heads.
    """
    if config.attention_kernel == "plain":
        return "plain"
    # JAX looks cuDNN up while tracing: lax.platform_dependent would be too late.
    device = target_device()
    if device.platform == "tpu":
        return "plain" if length % 128 else "tpu"  # it fills whole vectors
    if not device.device_kind.startswith("NVIDIA") or config.dtype != "bfloat16":
        return "plain"
    rate = config.attention_probs_dropout_prob
    if rate and not deterministic:
        raise ValueError(
            f"attention_probs_dropout_prob={rate} cannot be used with "
            "attention_kernel=fused on a GPU, whose kernel has no dropout; set it to "
            "0, or attention_kernel to plain."
        )
    width = config.hidden_size // config.num_attention_heads
    for name, value, holds, rule in (
        ("rows of", length, deterministic or length % 2 == 0, "an even number"),
        ("heads of", width, width % 8 == 0 and width <= 256, "a multiple of 8"),
    ):
        require(
            holds,
            f"{name} {value} cannot be used with attention_kernel=fused on a GPU, "
            f"whose kernel needs {rule}; set attention_kernel to plain, or change it.",
        )
    return "cudnn"


def cudnn_attention(
    query: Float[Array, "B T D"],
    key: Float[Array, "B T D"],
    value: Float[Array, "B T D"],
    visibility: Visibility,
    num_heads: int,
) -> Float[Array, "B T D"]:
    """Return attention by cuDNN's kernel.

    The mask is broadcast to every token: some cuDNN kernels ignore a mask of keys
    alone, or segment ids.
    """
    batch, length, hidden = query.shape
    split = (batch, length, num_heads, -1)
    query, key, value = (heads.reshape(split) for heads in (query, key, value))
    visible = visibility.matrix()[:, None]
    mixed = jax.nn.dot_product_attention(
        query,
        key,
        value,
        mask=jnp.broadcast_to(visible, (batch, 1, length, length)),
        implementation="cudnn",
    )
    return mixed.reshape(batch, length, hidden)
