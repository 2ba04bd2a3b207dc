"""What training carries from step to step, and all that a checkpoint must hold."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, UInt32


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


def initial_state(
    params: Any, optimizer: optax.GradientTransformation, key: UInt32[Array, "2"]
) -> TrainState:
    """The state before the first step."""
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=optimizer.init(params),
        key=key,
        skipped_in_a_row=jnp.zeros((), jnp.int32),
    )


def num_parameters(params: Any) -> int:
    """How many numbers the parameter tree (or its shapes) holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
