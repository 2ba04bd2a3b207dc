"""Multi-head self-attention (Vaswani et al. 2017, §3.2)."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from bert_jax.config import BertConfig
from bert_jax.model.layers import Dropout, LayerNorm, dense


def attention_probabilities(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S N H"],
    visible: Bool[Array, "B #T S"],
) -> Float[Array, "B N T S"]:
    """Return the attention probabilities of each token over the keys, in float32.

    Hidden keys get the lowest finite score and not minus infinity, so that a row
    without any visible key attends evenly instead of giving NaN.
    """
    scores = jnp.einsum(
        "BTNH,BSNH->BNTS", query, key, preferred_element_type=jnp.float32
    )
    scores = scores / jnp.sqrt(query.shape[-1]).astype(jnp.float32)
    lowest = jnp.finfo(jnp.float32).min
    return jax.nn.softmax(jnp.where(visible[:, None], scores, lowest), axis=-1)


def visible_keys(
    attention_mask: Bool[Array, "B S"],
    causal: bool,
    pair_ids: Int[Array, "B S"] | None = None,
) -> Bool[Array, "B #T S"]:
    """Return which keys each token may attend to: real ones; if causal, no later ones.

    With `pair_ids`, the index of each token's pair, only keys of its own pair.
    """
    visible = attention_mask[:, None, :]
    if pair_ids is not None:
        visible = visible & (pair_ids[:, :, None] == pair_ids[:, None, :])
    if causal:
        length = attention_mask.shape[1]
        visible = visible & jnp.tril(jnp.ones((length, length), bool))
    return visible


def fused_attention(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S N H"],
    value: Float[Array, "B S N H"],
    visible: Bool[Array, "B #T S"],
) -> Float[Array, "B T N H"]:
    """Return attention without its probabilities in memory, by cuDNN if possible.

    The mask is broadcast to every token: some cuDNN kernels ignore a mask of keys
    alone, or segment ids.
    """
    # JAX looks cuDNN up while tracing: lax.platform_dependent would be too late. A dry
    # run may compile for CPUs on a machine with a GPU; it sets the default device.
    config: Any = jax.config
    device = config.jax_default_device or jax.devices()[0]
    is_nvidia = getattr(device, "device_kind", "").startswith("NVIDIA")
    use_cudnn = is_nvidia and query.dtype == jnp.bfloat16
    shape = (len(query), 1, query.shape[1], key.shape[1])
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        mask=jnp.broadcast_to(visible[:, None], shape),
        implementation="cudnn" if use_cudnn else "xla",
    )


class SelfAttention(nn.Module):
    """Self-attention with dropout, residual connection and LayerNorm."""

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        hidden: Float[Array, "B T D"],
        visible: Bool[Array, "B #T T"],
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        c = self.config
        split = (*hidden.shape[:2], c.num_attention_heads, -1)
        query, key, value = (
            dense(c.hidden_size, c, name)(hidden).reshape(split)
            for name in ("query", "key", "value")
        )
        if c.fused_attention:
            mixed = fused_attention(query, key, value, visible)
        else:
            probabilities = Dropout(c.attention_probs_dropout_prob)(
                attention_probabilities(query, key, visible), deterministic
            ).astype(value.dtype)
            mixed = jnp.einsum("BNTS,BSNH->BTNH", probabilities, value)
        output = dense(c.hidden_size, c, "output")(mixed.reshape(hidden.shape))
        output = Dropout(c.hidden_dropout_prob)(output, deterministic)
        return LayerNorm(c, name="layer_norm")(hidden + output).astype(c.dtype)
