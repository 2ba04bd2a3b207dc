"""Muon: the momentum of each kernel of a layer, made orthogonal (Jordan et al. 2024).

Its updates have the size of AdamW's, so that AdamW's learning rate and weight decay
hold (Liu et al. 2025, arXiv 2502.16982, §2.2). optax.contrib.muon computes the same
directions, each device all of them; here each matrix is computed by one device.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from bert_jax.config import OptimizerConfig
from bert_jax.config.model import Params

COEFFICIENTS = 3.4445, -4.7750, 2.0315
"""Of the polynomial that moves singular values towards 1, into about [0.7, 1.2]."""
NUM_ITERATIONS = 5
UPDATE_RMS = 0.2
"""The root mean square of AdamW's updates, to which Muon's updates are scaled."""
Kernels = dict[tuple[str, ...], Any]
"""The matrices of the layers by their path."""


class MuonState(NamedTuple):
    """One moment of each kernel of the layers; AdamW's two of every other parameter."""

    adam: optax.OptState
    momentum: Params


def split_kernels(params: Params) -> tuple[Kernels, Params]:
    """Return the kernels of the layers, and a tree of all other parameters."""
    flat = flatten_dict(params)
    kernels = {
        path: leaf
        for path, leaf in flat.items()
        if path[0] == "encoder"
        and path[1].startswith("layer_")
        and path[-1] == "kernel"
    }
    others = {path: leaf for path, leaf in flat.items() if path not in kernels}
    return kernels, unflatten_dict(others)


def newton_schulz(matrices: Float[Array, "K R C"]) -> Float[Array, "K R C"]:
    """Return matrices with the same singular vectors and singular values near 1."""
    a, b, c = COEFFICIENTS
    rows, columns = matrices.shape[1:]
    # The iteration converges for singular values up to √3; Frobenius' norm bounds them.
    norms = jnp.linalg.norm(matrices, axis=(1, 2), keepdims=True)
    x = matrices / (norms + 1e-8)
    for _ in range(NUM_ITERATIONS):
        # (a + b G + c G²) x with G = x xᵀ: each singular value by an odd polynomial.
        # For more rows than columns the same from the right, with the smaller xᵀ x.
        if rows <= columns:
            gram = jnp.einsum("krc,ksc->krs", x, x)
            x = a * x + (b * gram + c * gram @ gram) @ x
        else:
            gram = jnp.einsum("krc,krd->kcd", x, x)
            x = a * x + x @ (b * gram + c * gram @ gram)
    return x


def orthogonalise(
    kernels: Kernels, mesh: Mesh | None, dtype: DTypeLike | None = None
) -> Kernels:
    """Return each matrix with singular values near 1, computed by one device of `mesh`.

    Matrices of a shape are stacked, and each device has its share of the stack, with
    whole matrices. The results are gathered once.
    """
    # Not with their transposes: a TPU would then store, and copy, all that belongs to
    # these kernels the other way round, which takes longer than the products.
    stacks: dict[tuple[int, ...], list[tuple[str, ...]]] = {}
    for path in sorted(kernels):
        stacks.setdefault(kernels[path].shape, []).append(path)
    directions = {}
    for paths in stacks.values():
        stack = jnp.stack(
            [kernels[path].astype(dtype or kernels[path].dtype) for path in paths]
        )
        if mesh is not None and mesh.size > 1:
            # Whole matrices: a device multiplies its own without collectives.
            # Zeros fill up the last share; they stay zeros.
            padding = -len(stack) % mesh.size
            stack = jnp.pad(stack, ((0, padding), (0, 0), (0, 0)))
            shares = NamedSharding(mesh, P(mesh.axis_names))
            stack = jax.lax.with_sharding_constraint(stack, shares)
            stack = jax.lax.with_sharding_constraint(newton_schulz(stack), shares)
            if padding > len(paths):
                # Few matrices for many devices: each device first gets some rows of
                # all, so that the zeros are left out before the rest is gathered.
                rows = NamedSharding(mesh, P(None, mesh.axis_names))
                stack = jax.lax.with_sharding_constraint(stack, rows)[: len(paths)]
            stack = jax.lax.with_sharding_constraint(stack, NamedSharding(mesh, P()))
        else:
            stack = newton_schulz(stack)
        for row, path in enumerate(paths):
            directions[path] = stack[row].astype(kernels[path].dtype)
    return directions


def muon(
    config: OptimizerConfig,
    adam: optax.GradientTransformationExtraArgs,
    mesh: Mesh | None,
    dtype: DTypeLike | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Clip by global norm, then take Muon's direction for kernels of layers.

    On a non-finite gradient the moments keep their old values. `adam` is for all other
    parameters; the devices of `mesh` share the work. The products of the iteration are
    of `dtype`, by default that of the kernels; as the directions are only near
    orthogonal, bfloat16 serves (Jordan et al. 2024).
    """

    def init(params: Params) -> MuonState:
        kernels, others = split_kernels(params)
        zeros = unflatten_dict(jax.tree.map(jnp.zeros_like, kernels))
        return MuonState(adam.init(others), zeros)

    def update(
        grads: Params,
        state: MuonState,
        params: Params | None = None,
        *,
        grad_norm: Float[Array, ""],
        **_: object,
    ) -> tuple[Params, MuonState]:
        kernels, others = split_kernels(grads)
        updates, adam_state = adam.update(others, state.adam, grad_norm=grad_norm)
        finite = jnp.isfinite(grad_norm)
        scale = jnp.minimum(1.0, config.max_grad_norm / grad_norm)
        momentum, ahead, before = {}, {}, flatten_dict(state.momentum)
        for path, grad in kernels.items():
            moment = config.momentum * before[path] + scale * grad
            # Nesterov's look ahead: the momentum of the next step, were its gradient 0,
            # and this gradient once more.
            ahead[path] = config.momentum * moment + scale * grad
            momentum[path] = jnp.where(finite, moment, before[path])
        directions = {
            path: UPDATE_RMS * max(matrix.shape) ** 0.5 * matrix
            for path, matrix in orthogonalise(ahead, mesh, dtype).items()
        }
        merged = unflatten_dict(flatten_dict(updates) | directions)
        return merged, MuonState(adam_state, unflatten_dict(momentum))

    return optax.GradientTransformationExtraArgs(init, update)
