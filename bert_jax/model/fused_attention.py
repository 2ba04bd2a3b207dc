"""Attention by kernels that never store its probabilities."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bert_jax.model.layers import target_device


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
    # JAX looks cuDNN up while tracing: lax.platform_dependent would be too late.
    is_nvidia = target_device().device_kind.startswith("NVIDIA")
    use_cudnn = is_nvidia and query.dtype == jnp.bfloat16
    shape = (len(query), 1, query.shape[1], key.shape[1])
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        mask=jnp.broadcast_to(visible[:, None], shape),
        implementation="cudnn" if use_cudnn else "xla",
    )
