"""The pieces every module is made of: dense layer, LayerNorm, activation, dropout."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from bert_jax.config import BertConfig


def kernel_init(config: BertConfig) -> jax.nn.initializers.Initializer:
    """Truncated normal within two standard deviations, for kernels and embeddings."""
    return nn.initializers.truncated_normal(config.initializer_range)


def dense(
    features: int, config: BertConfig, name: str
) -> Callable[[Float[Array, "*shape D"]], Float[Array, "*shape F"]]:
    """A dense layer that computes in `config.dtype` and keeps float32 parameters.

    It sees its input as one matrix: on a CPU the gradient of the kernel then takes half
    the time that it takes with several axes to sum over.
    """
    layer = nn.Dense(
        features,
        dtype=jnp.dtype(config.dtype),
        kernel_init=kernel_init(config),
        name=name,
    )

    def apply(inputs: Float[Array, "*shape D"]) -> Float[Array, "*shape F"]:
        matrix = inputs.reshape(-1, inputs.shape[-1])
        return layer(matrix).reshape(*inputs.shape[:-1], features)

    return apply


def layer_norm(config: BertConfig, name: str | None = None) -> nn.LayerNorm:
    """LayerNorm in float32, by the two-pass variance: 1e-12 needs its precision."""
    return nn.LayerNorm(
        epsilon=config.layer_norm_eps,
        dtype=jnp.float32,
        use_fast_variance=False,
        name=name,
    )


def activation(
    config: BertConfig,
) -> Callable[[Float[Array, "*shape"]], Float[Array, "*shape"]]:
    """The function that `config.hidden_act` names in `bert_config.json`."""
    functions = {
        "gelu": lambda x: jax.nn.gelu(x, approximate=False),
        "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
        "relu": jax.nn.relu,
    }
    return functions[config.hidden_act]
