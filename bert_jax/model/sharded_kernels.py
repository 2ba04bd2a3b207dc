"""Products with kernels of which each device has a shard.

Fully sharded data parallelism (Rajbhandari et al. 2020, §5.3; Zhao et al. 2023, §3): a
kernel is gathered where it is used, and again for its gradient, so that only those of a
few layers are in memory at any time.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

FSDP = "fsdp"
"""The mesh axis over which parameters are sharded."""


def sharded_axis(
    kernel: Float[Array, "_ _"] | None, shape: tuple[int, int]
) -> int | None:
    """Return the axis over which a kernel of this shape is sharded; None: it is not.

    Only a program that is mapped over `fsdp` sees shards.
    """
    if kernel is None or FSDP not in jax.sharding.get_abstract_mesh().manual_axes:
        return None
    num_shards = jax.lax.axis_size(FSDP)
    for axis in (0, 1):
        shard_shape = list(shape)
        shard_shape[axis] //= num_shards
        if num_shards > 1 and list(kernel.shape) == shard_shape:
            return axis
    return None


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
def product(
    inputs: Float[Array, "*shape D"],
    shard: Float[Array, "_ _"],
    after: Float[Array, "..."],
    axis: int,
    keep: bool,
) -> Float[Array, "*shape F"]:
    """Return `inputs` @ kernel, where each device has a shard of the kernel.

    The kernel is gathered in the dtype of `inputs`, and again for the gradient, so that
    no more than those of a few layers are in memory at any time. The gradient is
    scattered in float32 (Rajbhandari et al. 2020, §5.3; Zhao et al. 2023, §3).

    Args:
        after: gather once this is computed.
        axis: of the kernel, over which it is sharded.
        keep: do not gather again for the gradient, because all of this is computed
            again there.
    """
    return inputs @ gather_after(shard, after, axis, inputs.dtype)


def _product_forward(
    inputs: Float[Array, "*shape D"],
    shard: Float[Array, "_ _"],
    after: Float[Array, "..."],
    axis: int,
    keep: bool,
) -> tuple[Float[Array, "*shape F"], tuple[Array, Array]]:
    kernel = gather_after(shard, after, axis, inputs.dtype)
    return inputs @ kernel, (inputs, kernel if keep else shard)


def _product_backward(
    axis: int,
    keep: bool,
    residuals: tuple[Array, Array],
    grad: Float[Array, "*shape F"],
) -> tuple[Array, Array, None]:
    inputs, kernel = residuals
    if not keep:
        kernel = gather_after(kernel, grad, axis, inputs.dtype)
    rows = tuple(range(inputs.ndim - 1))
    kernel_grad = jnp.tensordot(inputs, grad, (rows, rows)).astype(jnp.float32)
    shard_grad = jax.lax.psum_scatter(
        kernel_grad, FSDP, scatter_dimension=axis, tiled=True
    )
    return grad @ kernel.T, shard_grad, None


product.defvjp(_product_forward, _product_backward)
