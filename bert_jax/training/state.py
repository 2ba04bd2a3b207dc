"""What training carries from step to step, and all that a checkpoint must hold."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jaxtyping import Array, Key


@struct.dataclass
class TrainState:
    """Arrays only; every one is saved.

    The fields are typed Any because shapes and shardings come in the same tree.
    """

    step: Any
    """int32[]: batches seen. A skipped update counts here, not in the optimizer."""
    params: Any
    opt_state: Any
    key: Any
    """uint32[2]: the run's base key; each step folds its number in."""
    skipped_in_a_row: Any
    """int32[]: updates left out in a row because their gradient was not finite."""


def split_seed(
    seed: int | np.uint32 | Array,
) -> tuple[Key[Array, ""], Key[Array, ""]]:
    """The key that draws the parameters, and the base key that each step folds in."""
    init_key, base_key = jax.random.split(jax.random.key(seed))
    return init_key, base_key


def split_step_key(
    key: Key[Array, ""],
) -> tuple[Key[Array, ""], Key[Array, ""]]:
    """The keys of what a step draws of its rows, as masks, and of its dropout."""
    draw_key, dropout_key = jax.random.split(key)
    return draw_key, dropout_key


def initial_state(
    initialise: Callable[[Key[Array, ""]], Any],
    optimizer: optax.GradientTransformation,
    seed: int | np.uint32 | Array,
) -> TrainState:
    """The state before the first step: a function of the seed alone.

    Args:
        initialise: key → parameters.
    """
    init_key, base_key = split_seed(seed)
    params = initialise(init_key)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=optimizer.init(params),
        key=jax.random.key_data(base_key),
        skipped_in_a_row=jnp.zeros((), jnp.int32),
    )


def num_parameters(params: Any) -> int:
    """How many numbers the parameter tree (or its shapes) holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
