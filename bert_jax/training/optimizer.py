"""AdamW as BERT was trained with it (Devlin et al. 2018, A.2)."""

from typing import Any

import jax
import optax
from jaxtyping import Array, Int

from bert_jax.config import OptimizerConfig


def learning_rate(config: OptimizerConfig, num_steps: int) -> optax.Schedule:
    """Linear from 0 to the peak over the warm-up, then linear to 0 at `num_steps`.

    The first update is made with a learning rate of 0.
    """
    peak, warmup = config.peak_learning_rate, config.warmup_steps
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


def make_optimizer(
    config: OptimizerConfig, num_steps: int
) -> optax.GradientTransformation:
    """Clipping by global norm, Adam, decoupled weight decay, schedule.

    It sees gradients that are already summed over devices, so that the norm is that of
    the whole batch.
    """
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.epsilon),
        optax.add_decayed_weights(config.weight_decay, mask=decayed),
        optax.scale_by_learning_rate(learning_rate(config, num_steps)),
    )


def updates_made(opt_state: Any) -> Int[Array, ""]:
    """How many updates `make_optimizer`'s state has seen; the schedule counts these."""
    return opt_state[-1].count
