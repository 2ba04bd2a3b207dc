"""The pieces every module is made of: dense layer, LayerNorm, activation, dropout."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Float, Key, UInt32

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


def random_uint32(
    key: Key[Array, ""], shape: tuple[int, ...]
) -> UInt32[Array, "*shape"]:
    """Independent numbers below 2^32: of a TPU's own generator, elsewhere of threefry.

    Either gives the same numbers for the same key on the same kind of device. GPUs have
    no generator in hardware; what XLA has for them and CPUs is a hash, too.
    """

    def hardware(data: UInt32[Array, "2"]) -> UInt32[Array, "*shape"]:
        seed = jnp.concatenate([data, data])
        words: Array = jax.lax.rng_bit_generator(seed, shape, jnp.uint32)[1]
        return words

    def threefry(data: UInt32[Array, "2"]) -> UInt32[Array, "*shape"]:
        counters = jnp.arange(math.prod(shape), dtype=jnp.uint32)
        return threefry_2x32(data, counters).reshape(shape)

    words: Array = jax.lax.platform_dependent(
        jax.random.key_data(key), tpu=hardware, default=threefry
    )
    return words


def random_uint16(
    key: Key[Array, ""], shape: tuple[int, ...]
) -> UInt32[Array, "*shape"]:
    """Independent numbers below 2^16, of one axis at least.

    A hash of threefry (Salmon et al. 2011) has 64 bits, of which `jax.random.bits`
    keeps 32 for a number of any width. Here one hash gives four numbers, which a CPU
    draws ten times as fast.
    """
    words = random_uint32(key, (-(-shape[0] // 2), *shape[1:]))
    return jnp.concatenate([words & 0xFFFF, words >> 16])[: shape[0]]


class Dropout(nn.Module):
    """Zeroes a share of the values and scales up the rest (Srivastava et al. 2014).

    The share is a multiple of 1/65536: 0.1 is 0.100006.
    """

    rate: float

    @nn.compact
    def __call__(
        self, values: Float[Array, "*shape"], deterministic: bool
    ) -> Float[Array, "*shape"]:
        dropped = min(round(self.rate * 2**16), 2**16 - 1)
        if deterministic or not dropped:
            return values
        numbers = random_uint16(self.make_rng("dropout"), values.shape)
        return jnp.where(numbers < dropped, 0, values * (2**16 / (2**16 - dropped)))


class LayerNorm(nn.Module):
    """LayerNorm in float32 (Ba et al. 2016), by the two-pass variance: 1e-12 needs its
    precision.

    Scaling comes last: flax scales the inverse deviation, which is one number a token,
    and a CPU writes out the product for every number.
    """

    config: BertConfig

    @nn.compact
    def __call__(self, values: Float[Array, "*shape D"]) -> Float[Array, "*shape D"]:
        shape = values.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        values = values.astype(jnp.float32)
        centred = values - values.mean(-1, keepdims=True)
        variance = (centred**2).mean(-1, keepdims=True)
        deviations = centred * jax.lax.rsqrt(variance + self.config.layer_norm_eps)
        return deviations * scale + bias


def gelu(
    values: Float[Array, "*shape"], approximate: bool = False
) -> Float[Array, "*shape"]:
    """The Gaussian error linear unit (Hendrycks & Gimpel 2016), by erf or by tanh.

    In float32 whatever comes in: in bfloat16, 1 + erf loses the tail below zero.
    """
    x = values.astype(jnp.float32)
    if approximate:
        x = jax.nn.gelu(x, approximate=True)
    else:  # jax.nn.gelu's erfc takes a CPU nearly three times as long
        x = x * (0.5 + 0.5 * jax.lax.erf(x * math.sqrt(0.5)))
    return x.astype(values.dtype)


def activation(
    config: BertConfig,
) -> Callable[[Float[Array, "*shape"]], Float[Array, "*shape"]]:
    """The function that `config.hidden_act` names in `bert_config.json`."""
    if config.hidden_act == "relu":
        return jax.nn.relu
    return functools.partial(gelu, approximate=config.hidden_act == "gelu_new")
