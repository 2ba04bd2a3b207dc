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
    """What share of its attention each token gives to each key, in float32.

    Hidden keys get the lowest finite score and not minus infinity: a row without any
    visible key then attends evenly instead of yielding NaN.
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
    pairs: Int[Array, "B S"] | None = None,
) -> Bool[Array, "B #T S"]:
    """Which keys each token may look at: the real ones, and no later ones if causal.

    With `pairs`, the number of each token's pair, only those of its own pair.
    """
    visible = attention_mask[:, None, :]
    if pairs is not None:
        visible = visible & (pairs[:, :, None] == pairs[:, None, :])
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
    """Attention without its probabilities in memory, where cuDNN has a kernel for it.

    The mask is written out for every token: of a single row of keys, or of segment
    numbers, some of cuDNN's kernels take no notice.
    """
    # Tracing asks for cuDNN already, so that lax.platform_dependent comes too late. A
    # dry run compiles for CPUs where there is a GPU too, and makes them the default.
    config: Any = jax.config
    device = config.jax_default_device or jax.devices()[0]
    nvidia = getattr(device, "device_kind", "").startswith("NVIDIA")
    cudnn = nvidia and query.dtype == jnp.bfloat16
    shape = (len(query), 1, query.shape[1], key.shape[1])
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        mask=jnp.broadcast_to(visible[:, None], shape),
        implementation="cudnn" if cudnn else "xla",
    )


class SelfAttention(nn.Module):
    """Attention with its dropouts, residual and LayerNorm."""

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
