"""Layers that all modules share: dense layer, LayerNorm, activation, dropout."""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.errors import ScopeParamShapeError
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Float, Key, UInt32

from bert_jax.config import BertConfig

FSDP = "fsdp"
"""The mesh axis over which kernels are sharded."""


def target_device() -> Any:
    """Return the default device, for which the step is traced: a `jax.Device`.

    A dry run sets it to a device that it compiles for, which need not be present.
    `jax.lax.platform_dependent` chooses later, when a traced program is lowered; that
    is too late where both choices would be differentiated, or need a library.
    """
    config: Any = jax.config
    chosen = config.jax_default_device
    if isinstance(chosen, str):
        return jax.devices(chosen)[0]
    return chosen or jax.devices()[0]


def kernel_init(
    config: BertConfig, truncated: bool = True
) -> jax.nn.initializers.Initializer:
    """Return the initializer of kernels and embeddings: a normal, cut at ±2σ."""
    if not truncated:
        return nn.initializers.normal(config.initializer_range)
    return nn.initializers.truncated_normal(config.initializer_range)


def parameter(
    module: nn.Module,
    name: str,
    init: jax.nn.initializers.Initializer,
    shape: tuple[int, ...],
) -> Array:
    """Return a parameter of `module`; `init` draws it if `module` is initialized.

    As `module.param`, which traces `init` only to compare shapes, at every call: a
    seventh of the time that it takes to trace a training step. Raise
    ScopeParamShapeError if the parameter has another shape.
    """
    value: Any = module.get_variable("params", name)
    if value is None:
        value = module.param(name, init, shape, jnp.float32)
    elif np.shape(value) != shape:
        path = "/" + "/".join(module.path)
        raise ScopeParamShapeError(name, path, np.shape(value), shape)
    return jnp.asarray(value)


def store(module: nn.Module, collection: str, name: str, values: Any) -> None:
    """Store values where `apply` asks for their collection; `init` has none of them."""
    if not module.is_initializing():
        module.sow(collection, name, values)


class Dense(nn.Module):
    """A dense layer that computes in `config.dtype` with float32 parameters.

    On CPUs and GPUs the input is reshaped to a matrix: on a CPU, the gradient of the
    kernel then takes half the time that it takes with several batch axes. On a TPU that
    would make copies from and to the layout of attention, and keep elementwise
    operations out of the products: 30 % more time by its compiler's estimate. Only with
    rematerialisation the input is a matrix there, too: libtpu 0.0.42 crashes
    otherwise (a stack overflow, base, 32 rows of 128 on a chip).

    In a program that is mapped over `fsdp`, the kernel may be a shard; see
    `sharded_matmul`.
    """

    features: int
    config: BertConfig
    truncated: bool = True
    """Whether the initial kernel is within ±2σ."""

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "*shape D"], after: Float[Array, "..."] | None = None
    ) -> Float[Array, "*shape F"]:
        """Return the product of `inputs` with the kernel, plus the bias.

        A sharded kernel is gathered once `after` is computed; None: `inputs`.
        """
        c, shape = self.config, (inputs.shape[-1], self.features)
        kernel: Any = self.get_variable("params", "kernel")
        axis = None if kernel is None else sharded_axis(kernel.shape, shape)
        # `parameter` would refuse the shape of a shard.
        if axis is None:
            kernel = parameter(self, "kernel", kernel_init(c, self.truncated), shape)
        bias = parameter(self, "bias", nn.initializers.zeros, shape[1:])
        inputs = inputs.astype(c.dtype)
        is_matrix = target_device().platform != "tpu" or c.remat != "none"
        rows = inputs.reshape(-1, shape[0]) if is_matrix else inputs
        if axis is None:
            output = rows @ kernel.astype(c.dtype)
        else:
            after = inputs if after is None else after
            output = sharded_matmul(rows, kernel, after, axis, c.remat == "layer")
        output = add_bias(output, bias, c.dtype)
        return output.reshape(*inputs.shape[:-1], self.features)


def is_bfloat16_on_tpu(dtype: Any) -> bool:
    """Return whether the step is traced for a TPU that computes in bfloat16."""
    return target_device().platform == "tpu" and jnp.dtype(dtype) == jnp.bfloat16


def at_least_float32(values: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return values in float32; float64 values, with which tests compute, stay so."""
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


def last_axis(
    vector: Float[Array, " F"], values: Float[Array, "*shape F"]
) -> Float[Array, "..."]:
    """Return a vector with the number of axes of `values`, as its last axis.

    Programs may set jax_numpy_rank_promotion=raise, which refuses fewer axes.
    """
    return jnp.expand_dims(vector, tuple(range(values.ndim - 1)))


def add_bias(
    products: Float[Array, "*shape F"], bias: Float[Array, " F"], dtype: Any
) -> Float[Array, "*shape F"]:
    """Return `products` + `bias`, added in float32, in the dtype of `products`.

    `dtype` is that of the computation.
    """
    if is_bfloat16_on_tpu(dtype):
        return bias_with_gradient_by_product(products, bias)
    # In float32, because the gradient of the bias is a sum over all tokens.
    return (at_least_float32(products) + last_axis(bias, products)).astype(
        products.dtype
    )


@jax.custom_vjp
def bias_with_gradient_by_product(
    products: Float[Array, "*shape F"], bias: Float[Array, " F"]
) -> Float[Array, "*shape F"]:
    """As `add_bias`; the gradient of the bias is a product with ones, for a TPU.

    Its matrix units multiply in bfloat16 and add up the tokens in float32. By the
    compiler's estimate that takes 2 µs, where a sum takes 59 (v5e, base, 64 rows of
    128).
    """
    return (products.astype(jnp.float32) + last_axis(bias, products)).astype(
        products.dtype
    )


def _bias_backward(
    _: None, grad: Float[Array, "*shape F"]
) -> tuple[Float[Array, "*shape F"], Float[Array, " F"]]:
    tokens = grad.shape[:-1]
    ones = jnp.ones((8, *tokens), grad.dtype)  # 8 rows: what a register holds
    # All 8 rows of the product are the same sums.
    sums = jnp.tensordot(ones, grad, len(tokens), preferred_element_type=jnp.float32)
    return grad, sums[0]


bias_with_gradient_by_product.defvjp(
    lambda products, bias: (bias_with_gradient_by_product(products, bias), None),
    _bias_backward,
)


def sharded_axis(actual: tuple[int, ...], shape: tuple[int, int]) -> int | None:
    """Return the axis over which a kernel of this shape is sharded; None: it is not.

    Only a program that is mapped over `fsdp` sees shards, of the `actual` shape.
    """
    if FSDP not in jax.sharding.get_abstract_mesh().manual_axes:
        return None
    rows, columns = shape
    num_shards = jax.lax.axis_size(FSDP)
    if num_shards == 1:
        return None
    shard_shapes = [(rows // num_shards, columns), (rows, columns // num_shards)]
    return shard_shapes.index(actual) if actual in shard_shapes else None


def gather_after(
    shard: Float[Array, "_ _"], after: Float[Array, "..."], axis: int, dtype: jnp.dtype
) -> Float[Array, "D F"]:
    """Gather a kernel over `fsdp` in `dtype`, but not before `after` is computed.

    Without a reason to wait, compilers gather all kernels of a model at the start, and
    keep those of the forward pass for the backward pass.
    """
    shard, _ = jax.lax.optimization_barrier((shard, after))
    return jax.lax.all_gather(shard.astype(dtype), FSDP, axis=axis, tiled=True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def sharded_matmul(
    inputs: Float[Array, "*shape D"],
    shard: Float[Array, "_ _"],
    after: Float[Array, "..."],
    axis: int,
    keep: bool,
) -> Float[Array, "*shape F"]:
    """Return `inputs` @ kernel; each device has a shard of the kernel along `axis`.

    The kernel is gathered once `after` is computed, in the dtype of `inputs`, and again
    for the gradient, so that no more than those of a few layers are in memory at any
    time. With `keep` it is not: with rematerialisation of layers, this product itself
    is computed again there; the heads keep theirs. The gradient is scattered in float32
    (Rajbhandari et al. 2020, §5.3; Zhao et al. 2023, §3).
    """
    return inputs @ gather_after(shard, after, axis, inputs.dtype)


def _sharded_matmul_forward(
    inputs: Float[Array, "*shape D"],
    shard: Float[Array, "_ _"],
    after: Float[Array, "..."],
    axis: int,
    keep: bool,
) -> tuple[Float[Array, "*shape F"], tuple[Array, Array]]:
    kernel = gather_after(shard, after, axis, inputs.dtype)
    # The shard is a parameter, which is in memory anyway; the whole kernel is not.
    return inputs @ kernel, (inputs, kernel if keep else shard)


def _sharded_matmul_backward(
    axis: int,
    keep: bool,
    residuals: tuple[Array, Array],
    grad: Float[Array, "*shape F"],
) -> tuple[Array, Array, None]:
    inputs, kernel = residuals
    if not keep:
        kernel = gather_after(kernel, grad, axis, inputs.dtype)
    # Each device has the gradient of the whole kernel by its own rows; their sum is
    # needed of its shard alone.
    rows = tuple(range(inputs.ndim - 1))
    kernel_grad = at_least_float32(jnp.tensordot(inputs, grad, (rows, rows)))
    shard_grad = jax.lax.psum_scatter(
        kernel_grad, FSDP, scatter_dimension=axis, tiled=True
    )
    return grad @ kernel.T, shard_grad, None


sharded_matmul.defvjp(_sharded_matmul_forward, _sharded_matmul_backward)


def random_uint16(
    key: Key[Array, ""], shape: tuple[int, ...]
) -> UInt32[Array, "*shape"]:
    """Return random 16-bit numbers as uint32; `shape` has at least one axis.

    They come from a TPU's hardware generator, or from a threefry hash (Salmon et al.
    2011), which has 64 bits. `jax.random.bits` spends at least 32 of them on each
    number; using 16 is ten times as fast on a CPU. GPUs have no hardware generator;
    XLA's own generator for GPUs and CPUs is a hash, too. The same key gives the same
    numbers on the same kind of device.
    """

    def hardware(data: UInt32[Array, "2"]) -> UInt32[Array, "*shape"]:
        seed = jnp.concatenate([data, data])
        bits: Array = jax.lax.rng_bit_generator(seed, shape, jnp.uint16)[1]
        return bits.astype(jnp.uint32)

    def threefry(data: UInt32[Array, "2"]) -> UInt32[Array, "*shape"]:
        # Split each 32-bit number into its lower and upper half.
        halves = (-(-shape[0] // 2), *shape[1:])
        counters = jnp.arange(math.prod(halves), dtype=jnp.uint32)
        bits = threefry_2x32(data, counters).reshape(halves)
        return jnp.concatenate([bits & 0xFFFF, bits >> 16])[: shape[0]]

    bits: Array = jax.lax.platform_dependent(
        jax.random.key_data(key), tpu=hardware, default=threefry
    )
    return bits


class Dropout(nn.Module):
    """Zeroes a fraction of the values and scales up the rest (Srivastava et al. 2014).

    The fraction is rounded to a multiple of 1/65536: 0.1 becomes 0.100006.
    """

    rate: float
    swapped: bool = False
    """Draw the random numbers with the last two axes swapped. It saves a copy if the
    values have them swapped in memory."""

    @nn.compact
    def __call__(
        self, values: Float[Array, "*shape"], deterministic: bool
    ) -> Float[Array, "*shape"]:
        # 16 random bits are below it with the probability `rate`.
        threshold = min(round(self.rate * 2**16), 2**16 - 1)
        if deterministic or not threshold:
            return values
        key, shape = self.make_rng("dropout"), values.shape
        if self.swapped:
            shape = (*shape[:-2], shape[-1], shape[-2])
            bits = random_uint16(key, shape).swapaxes(-2, -1)
        else:
            bits = random_uint16(key, shape)
        return jnp.where(bits < threshold, 0, values * (2**16 / (2**16 - threshold)))


class LayerNorm(nn.Module):
    """LayerNorm in float32 (Ba et al. 2016).

    The variance takes two passes, because an epsilon of 1e-12 needs the precision.
    That of bfloat16 values takes one on a TPU: the sums are then part of the product
    before, 6 % less time for the whole step by its compiler's estimate. Its relative
    error is 1e-7 · (1 + mean² / variance), below that of the values for means up to a
    hundred deviations. The scale is applied last: Flax multiplies it with the inverse
    deviation first, and then a CPU writes that product to memory for every value.
    """

    config: BertConfig

    @nn.compact
    def __call__(self, values: Float[Array, "*shape D"]) -> Float[Array, "*shape D"]:
        shape = values.shape[-1:]
        scale = parameter(self, "scale", nn.initializers.ones, shape)
        bias = parameter(self, "bias", nn.initializers.zeros, shape)
        one_pass = is_bfloat16_on_tpu(values.dtype)
        values = at_least_float32(values)
        mean = values.mean(-1, keepdims=True)
        centred = values - mean
        if one_pass:
            mean_square = (values**2).mean(-1, keepdims=True)
            # Rounding may make the difference a little negative.
            variance = jnp.maximum(mean_square - mean**2, 0.0)
        else:
            variance = (centred**2).mean(-1, keepdims=True)
        deviations = centred * jax.lax.rsqrt(variance + self.config.layer_norm_eps)
        return deviations * last_axis(scale, values) + last_axis(bias, values)


def gelu(
    values: Float[Array, "*shape"], approximate: bool = False
) -> Float[Array, "*shape"]:
    """Return the Gaussian error linear unit (Hendrycks & Gimpel 2016), by erf or tanh.

    It computes in float32: in bfloat16, 1 + erf loses the tail below zero.
    """
    x = at_least_float32(values)
    if approximate:
        x = jax.nn.gelu(x, approximate=True)
    else:  # jax.nn.gelu uses erfc, which takes nearly three times as long on a CPU
        x = x * (0.5 + 0.5 * jax.lax.erf(x * math.sqrt(0.5)))
    return x.astype(values.dtype)


def activation(
    name: Literal["gelu", "gelu_new", "relu", "tanh"],
) -> Callable[[Float[Array, "*shape"]], Float[Array, "*shape"]]:
    """Return the activation function that `hidden_act` or `pooler_act` names."""
    if name == "relu":
        return jax.nn.relu
    if name == "tanh":
        return jnp.tanh
    return functools.partial(gelu, approximate=name == "gelu_new")
