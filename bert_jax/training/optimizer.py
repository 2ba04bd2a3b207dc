"""AdamW as BERT was trained with it (Devlin et al. 2018, A.2), LAMB, and Muon."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PyTree

from bert_jax.config import OptimizerConfig, RunConfig
from bert_jax.config.checks import require
from bert_jax.config.model import Params
from bert_jax.distributed.sharding import KeyPath
from bert_jax.training.muon import muon


def learning_rate(config: OptimizerConfig, num_steps: int) -> optax.Schedule:
    """Return the schedule: linear warm-up from 0 to the peak, then linear to 0.

    With schedule=constant, it stays at the peak until the decay begins (Hägele et al.
    2024, §3). The first update is made with a learning rate of 0. `num_steps` is the
    length of the schedule.
    """
    peak, (warmup, decay) = config.peak_learning_rate, config.phases(num_steps)
    rise = optax.linear_schedule(0.0, peak, warmup)
    fall = optax.linear_schedule(peak, 0.0, num_steps - decay)
    if config.schedule == "linear":
        return optax.join_schedules([rise, fall], boundaries=[warmup])
    stay = optax.constant_schedule(peak)
    return optax.join_schedules([rise, stay, fall], boundaries=[warmup, decay])


def decayed(params: Params) -> PyTree:
    """Return true for kernels and embeddings, false for biases and LayerNorm."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: path[-1].key in ("kernel", "embedding"), params
    )


def depths(params: Params) -> PyTree:
    """Return each parameter's depth: 0 embeddings, i + 1 layer i, L + 1 a head.

    All of a model of one's own that has no encoder are a head.
    """
    names = {name for name in params.get("encoder", {}) if name.startswith("layer_")}

    def depth(path: KeyPath, _: object) -> int:
        if path[0].key != "encoder":
            return len(names) + 1
        name = path[1].key
        return int(name.removeprefix("layer_")) + 1 if name in names else 0

    return jax.tree_util.tree_map_with_path(depth, params)


def by_layer(config: OptimizerConfig) -> optax.GradientTransformation:
    """Scale updates down layer by layer, and to 0 in frozen layers."""

    def scaled_tree(updates: Params, _: Params | None) -> Params:
        places = depths(updates)
        top = max(jax.tree.leaves(places))

        def scaled(values: Array, depth: int) -> Array:
            frozen = config.frozen_layers and depth <= config.frozen_layers
            return values * (0.0 if frozen else config.layer_decay ** (top - depth))

        return jax.tree.map(scaled, updates, places)

    return optax.stateless(scaled_tree)


def adam(config: OptimizerConfig) -> optax.GradientTransformationExtraArgs:
    """Clip by global norm, then take Adam's direction (Kingma & Ba 2015, Alg. 1).

    The same as optax's two transformations in sequence, with their state, in less than
    half the time on a CPU. On a non-finite gradient the moments keep their old values;
    this is decided where they are computed, because a later choice would cost a copy.
    The clipped gradient is not stored either.
    """
    beta1, beta2 = config.beta1, config.beta2

    def init(params: Params) -> optax.ScaleByAdamState:
        mu, nu = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
        return optax.ScaleByAdamState(jnp.zeros((), jnp.int32), mu, nu)

    def update(
        grads: Params,
        state: optax.ScaleByAdamState,
        params: Params | None = None,
        *,
        grad_norm: Float[Array, ""],
        **_: object,
    ) -> tuple[Params, optax.ScaleByAdamState]:
        finite = jnp.isfinite(grad_norm)
        # Not applied to the gradient, which would be written to memory once more.
        scale = jnp.minimum(1.0, config.max_grad_norm / grad_norm)
        count = optax.safe_increment(state.count)

        def moment(decay: float, old: Array, value: Array) -> Array:
            return jnp.where(finite, decay * old + (1 - decay) * value, old)

        def direction(mu: Array, nu: Array) -> Array:
            # The moments begin as zeros, and so are too small at first.
            unbiased = nu / (1 - beta2**count)
            return mu / (1 - beta1**count) / (unbiased**0.5 + config.epsilon)

        mu = jax.tree.map(lambda m, g: moment(beta1, m, scale * g), state.mu, grads)
        nu = jax.tree.map(
            lambda v, g: moment(beta2, v, (scale * g) ** 2), state.nu, grads
        )
        count = jnp.where(finite, count, state.count)
        state = optax.ScaleByAdamState(count, mu, nu)
        return jax.tree.map(direction, mu, nu), state

    return optax.GradientTransformationExtraArgs(init, update)


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """Clipping, the guard against non-finite gradients, the algorithm, the schedule.

    Gradients come summed over all devices, so that the norm is the global batch's.
    """

    config: OptimizerConfig
    num_steps: int
    """The length of the schedule."""
    mesh: Mesh | None = None
    """The devices that share Muon's work; None: each does all of it."""
    dtype: DTypeLike | None = None
    """The type of Muon's products; None: the parameters' type."""

    @classmethod
    def of(cls, config: RunConfig) -> "Optimizer":
        """Return the optimizer of a run; its products are as narrow as the model's."""
        narrow = config.model.dtype == "bfloat16"
        dtype = jnp.bfloat16 if narrow else None
        return cls(config.optimizer, config.schedule_steps, dtype=dtype)

    @functools.cached_property
    def schedule(self) -> optax.Schedule:
        """The learning rate by the number of updates."""
        return learning_rate(self.config, self.num_steps)

    @functools.cached_property
    def _chain(self) -> optax.GradientTransformationExtraArgs:
        """Adam or Muon first, the schedule last: `update` and `num_updates` rely on it.

        LAMB's ratio of norms is 1 for biases and LayerNorm, which are not decayed
        either.
        """
        trust_ratio = optax.masked(optax.scale_by_trust_ratio(), decayed)
        first = adam(self.config)
        if self.config.algorithm == "muon":
            first = muon(self.config, first, self.mesh, self.dtype)
        return optax.chain(
            first,
            optax.add_decayed_weights(self.config.weight_decay, mask=decayed),
            trust_ratio if self.config.algorithm == "lamb" else optax.identity(),
            by_layer(self.config),
            optax.scale_by_learning_rate(self.schedule),
        )

    def init(self, params: Params) -> optax.OptState:
        """Return the state before the first update."""
        return self._chain.init(params)

    def update(
        self, grads: Params, state: optax.OptState, params: Params
    ) -> tuple[Params, optax.OptState, Float[Array, ""]]:
        """Return the next parameters and state, and the global norm of the gradient.

        If the norm is not finite, parameters and state are returned unchanged.
        """
        grad_norm = optax.tree.norm(grads)
        if_finite = functools.partial(jnp.where, jnp.isfinite(grad_norm))
        updates, (first_state, *rest) = self._chain.update(
            grads, state, params, grad_norm=grad_norm
        )
        next_params = optax.apply_updates(params, updates)
        next_params = jax.tree.map(if_finite, next_params, params)
        # `adam` and `muon` already skipped their update.
        next_rest = jax.tree.map(if_finite, rest, list(state[1:]))
        return next_params, (first_state, *next_rest), grad_norm

    def num_updates(self, state: optax.OptState) -> Int[Array, ""]:
        """Return the number of updates made; the schedule counts these."""
        return state[-1].count

    def learning_rate(self, state: optax.OptState) -> Float[Array, ""]:
        """Return the learning rate of the next update."""
        rate: Float[Array, ""] = self.schedule(self.num_updates(state))
        return rate

    def freeze(self, params: Params) -> Params:
        """Return `params` with frozen layers as constants without gradient.

        Raises:
            ValueError: all would be frozen.
        """
        if not (frozen := self.config.frozen_layers):
            return params
        places = depths(params)
        most = max(jax.tree.leaves(places)) - 1
        require(
            frozen <= most,
            f"optimizer.frozen_layers={frozen} leaves nothing of this model to learn; "
            f"it must be at most {most}.",
        )

        def constant(values: Array, depth: int) -> Array:
            return jax.lax.stop_gradient(values) if depth <= frozen else values

        return jax.tree.map(constant, params, places)
