"""What training carries from step to step, and all that a checkpoint must hold."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Int, UInt32


@struct.dataclass
class TrainState:
    """Arrays only; every one is saved."""

    step: Int[Array, ""]
    """Batches seen. A skipped update counts here, but not in the optimizer."""
    params: Any
    opt_state: optax.OptState
    key: UInt32[Array, "2"]
    """The run's base key; each step folds its number in."""
    skipped_in_a_row: Int[Array, ""]
    """Updates left out one after another because their gradient was not finite."""


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
