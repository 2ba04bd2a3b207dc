"""AdamW as BERT was trained with it (Devlin et al. 2018, A.2), and LAMB."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from bert_jax.config import OptimizerConfig


def learning_rate(config: OptimizerConfig, num_steps: int) -> optax.Schedule:
    """Linear from 0 to the peak over the warm-up, then linear to 0 at `num_steps`.

    The first update is made with a learning rate of 0.
    """
    peak = config.peak_learning_rate
    warmup = config.warmup_steps or round(config.warmup_share * num_steps)
    return optax.join_schedules(
        [
            optax.linear_schedule(0.0, peak, warmup),
            optax.linear_schedule(peak, 0.0, num_steps - warmup),
        ],
        boundaries=[warmup],
    )


def decayed(params: Any) -> Any:
    """True for kernels and embeddings, false for biases and LayerNorm."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: path[-1].key in ("kernel", "embedding"), params
    )


def depths(params: Any) -> Any:
    """How far up each parameter is: 0 embeddings, i + 1 in layer i, L + 1 in a head."""
    names = {name for name in params["encoder"] if name.startswith("layer_")}

    def depth(path: tuple[Any, ...], _: Any) -> int:
        if path[0].key != "encoder":
            return len(names) + 1
        name = path[1].key
        return int(name.removeprefix("layer_")) + 1 if name in names else 0

    return jax.tree_util.tree_map_with_path(depth, params)


def by_layer(config: OptimizerConfig) -> optax.GradientTransformation:
    """Updates scaled down from layer to layer, and none at all where frozen."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        places = depths(updates)
        top = max(jax.tree.leaves(places))

        def scaled(values: Array, depth: int) -> Array:
            frozen = config.frozen_layers and depth <= config.frozen_layers
            return values * (0.0 if frozen else config.layer_decay ** (top - depth))

        return jax.tree.map(scaled, updates, places), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def without_gradient(params: Any, config: OptimizerConfig) -> Any:
    """`params`, the frozen ones as constants, so that nothing is differentiated by
    them."""
    return jax.tree.map(
        lambda values, depth: (
            jax.lax.stop_gradient(values) if depth <= config.frozen_layers else values
        ),
        params,
        depths(params),
    )


def adam(config: OptimizerConfig) -> optax.GradientTransformationExtraArgs:
    """Clipping by global norm, then Adam's direction (Kingma & Ba 2015, Alg. 1).

    As optax has them, one after the other, with its state. Here a gradient that is not
    finite leaves the moments as they are, and where they are computed: to choose
    between old and new ones later costs a copy of them. Nor is the clipped gradient
    written out. A CPU takes less than half the time.
    """

    def init(params: Any) -> optax.ScaleByAdamState:
        zeros = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
        return optax.ScaleByAdamState(jnp.zeros((), jnp.int32), *zeros)

    def update(
        grads: Any,
        state: optax.ScaleByAdamState,
        params: Any = None,
        *,
        grad_norm: Float[Array, ""],
        **_: Any,
    ) -> tuple[Any, optax.ScaleByAdamState]:
        finite = jnp.isfinite(grad_norm)
        scale = jnp.minimum(1.0, config.max_grad_norm / grad_norm)
        count = optax.safe_increment(state.count)

        def moment(decay: float, old: Array, value: Array) -> Array:
            return jnp.where(finite, decay * old + (1 - decay) * value, old)

        def direction(mu: Array, nu: Array) -> Array:
            unbiased = nu / (1 - config.beta2**count)
            return mu / (1 - config.beta1**count) / (unbiased**0.5 + config.epsilon)

        first, second = config.beta1, config.beta2
        mu = jax.tree.map(lambda m, g: moment(first, m, scale * g), state.mu, grads)
        nu = jax.tree.map(
            lambda v, g: moment(second, v, (scale * g) ** 2), state.nu, grads
        )
        count = jnp.where(finite, count, state.count)
        state = optax.ScaleByAdamState(count, mu, nu)
        return jax.tree.map(direction, mu, nu), state

    return optax.GradientTransformationExtraArgs(init, update)


def make_optimizer(
    config: OptimizerConfig, num_steps: int
) -> optax.GradientTransformationExtraArgs:
    """Clipping by global norm, Adam, decoupled weight decay, schedule.

    It sees gradients that are already summed over devices, and takes their norm as
    `grad_norm`: that of the whole batch. LAMB's ratio of norms is left at 1 for biases
    and LayerNorm, which are not decayed either.
    """
    lamb = config.algorithm == "lamb"
    return optax.chain(
        adam(config),
        optax.add_decayed_weights(config.weight_decay, mask=decayed),
        optax.masked(optax.scale_by_trust_ratio(), decayed)
        if lamb
        else optax.identity(),
        by_layer(config),
        optax.scale_by_learning_rate(learning_rate(config, num_steps)),
    )


def updates_made(opt_state: Any) -> Int[Array, ""]:
    """How many updates `make_optimizer`'s state has seen; the schedule counts these."""
    return opt_state[-1].count
