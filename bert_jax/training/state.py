"""The training state, which steps update and checkpoints save."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Key, PyTree

from bert_jax.config.model import Params
from bert_jax.training.optimizer import Optimizer


@struct.dataclass
class TrainState:
    """The arrays of a training run; a checkpoint saves all of them.

    The fields are of type PyTree, because trees of shapes or shardings use them too.
    """

    step: PyTree
    """int32[]: the number of steps done. A skipped update counts here, not in the
    optimizer."""
    params: PyTree
    opt_state: PyTree
    key: PyTree
    """uint32[2]: the base key of the run; each step folds its number in."""
    skipped_in_a_row: PyTree
    """int32[]: the number of updates skipped in a row for a non-finite gradient."""


def split_seed(
    seed: int | np.uint32 | Array,
) -> tuple[Key[Array, ""], Key[Array, ""]]:
    """Return the key of the initial parameters, and the base key of all steps."""
    init_key, base_key = jax.random.split(jax.random.key(seed))
    return init_key, base_key


def split_step_key(
    key: Key[Array, ""],
) -> tuple[Key[Array, ""], Key[Array, ""]]:
    """Return the keys of a step's masking and of its dropout."""
    mask_key, dropout_key = jax.random.split(key)
    return mask_key, dropout_key


def initial_state(
    init_params: Callable[[Key[Array, ""]], Params],
    optimizer: Optimizer,
    seed: int | np.uint32 | Array,
) -> TrainState:
    """Return the state before the first step: a function of the seed alone."""
    init_key, base_key = split_seed(seed)
    params = init_params(init_key)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=optimizer.init(params),
        key=jax.random.key_data(base_key),
        skipped_in_a_row=jnp.zeros((), jnp.int32),
    )


def with_shardings(tree: PyTree, shardings: PyTree) -> PyTree:
    """Return the shape, dtype and sharding of every array."""
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding
        ),
        tree,
        shardings,
    )


def num_parameters(params: Params) -> int:
    """Return the number of scalars in a parameter tree, or in its shapes."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
