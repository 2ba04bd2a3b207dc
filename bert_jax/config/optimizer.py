"""Configuration of the optimizer and its learning rate."""

import dataclasses
from typing import Literal

from bert_jax.config.checks import CheckedConfig, require

_LARGEST_RATES = {"adamw": 0.02, "muon": 0.1, "lamb": 0.1}


@dataclasses.dataclass(frozen=True, repr=False)
class OptimizerConfig(CheckedConfig):
    """AdamW with linear warm-up, then decay (Devlin et al. 2018, A.2), LAMB or Muon."""

    algorithm: Literal["adamw", "lamb", "muon"] = "adamw"
    """adamw; muon, which makes the updates of the layers' kernels orthogonal and leaves
    the rest to adamw (Liu et al. 2025); or lamb for batches of tens of thousands of
    rows: it scales each update to the norm of its kernel or embedding (You et al. 2020,
    Alg. 2)."""
    peak_learning_rate: float = 1e-4
    """Maximum learning rate, reached at the end of the warm-up. Fine-tuning on a task
    but sentence-pairs has 1e-3 for a model at most 128 wide, unless it is named."""
    schedule: Literal["linear", "constant"] = "linear"
    """Learning rate after the warm-up: linear, a decay to 0 over all of the steps, or
    constant, the peak until a decay to 0 over the last of them (Hu et al. 2024)."""
    warmup_steps: int = 10_000
    """Number of warm-up steps, from learning rate 0 to the peak."""
    warmup_share: float = 0.0
    """With warmup_steps=0: warm-up as a fraction of the schedule."""
    decay_steps: int = 0
    """Step at which the learning rate has decayed to 0; 0: num_steps."""
    decay_share: float = 0.2
    """With schedule=constant: length of the linear decay, as a fraction of the schedule
    at its end (Hägele et al. 2024, §3); 0: no decay."""
    weight_decay: float = 0.01
    """Weight decay of kernels and embeddings; biases and LayerNorm have none."""
    beta1: float = 0.9
    """Decay rate of the first moment."""
    beta2: float = 0.999
    """Decay rate of the second moment."""
    epsilon: float = 1e-6
    """Added to the square root of the second moment."""
    momentum: float = 0.95
    """With algorithm=muon: decay rate of the one moment of the layers' kernels."""
    max_grad_norm: float = 1.0
    """Maximum global norm of the gradient; larger gradients are scaled down to it."""
    layer_decay: float = 1.0
    """Multiply the learning rate by this factor for each layer below the heads,
    and once more for the embeddings (Clark et al. 2020, A)."""
    frozen_layers: int = 0
    """Number of lowest layers that are not updated, together with the embeddings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("peak_learning_rate", "epsilon", "max_grad_norm")
        self.require_not_negative("weight_decay", "warmup_steps", "decay_steps")
        self.require_not_negative("frozen_layers")
        self.require_fraction("beta1", "beta2", "warmup_share", "momentum")
        factor = self.layer_decay
        require(0 < factor <= 1, f"layer_decay={factor} must be above 0 and at most 1.")
        self.require_effect(
            "momentum",
            self.algorithm == "muon",
            f"algorithm={self.algorithm}, which has beta1; leave it out, or set "
            "algorithm to muon.",
        )
        require(
            self.algorithm != "muon" or factor == 1,
            f"layer_decay={factor} is not known to help with algorithm=muon, whose "
            "updates all have one size; leave it out, or set algorithm to adamw.",
        )
        self._check_decay_share()

    def _check_decay_share(self) -> None:
        share, warmup = self.decay_share, self.warmup_share
        require(0 <= share <= 1, f"decay_share={share} must be from 0 to 1.")
        is_constant = self.schedule == "constant"
        self.require_effect(
            "decay_share",
            is_constant,
            "schedule=linear, which decays right after the warm-up; leave it out, or "
            "set schedule to constant.",
        )
        require(
            share > 0 or not self.decay_steps or (warmup > 0 and not self.warmup_steps),
            f"decay_steps={self.decay_steps} has no effect with decay_share={share}, "
            "which means no decay; leave one of them out.",
        )
        require(
            not is_constant or self.warmup_steps > 0 or warmup + share <= 1 + 1e-9,
            f"warmup_share={warmup} and decay_share={share} must add up to at most 1.",
        )

    def rate_warning(self) -> str:
        """Return a line if the rate is far above what models learn by, or ""."""
        rate, usual = self.peak_learning_rate, _LARGEST_RATES[self.algorithm]
        if rate <= usual:
            return ""
        return (
            f"peak_learning_rate={rate:g} is far above what models learn by with "
            f"{self.algorithm}, at most {usual:g}; fine-tuning takes about 3e-5, small "
            "models 1e-3."
        )

    def phases(self, schedule_steps: int) -> tuple[int, int]:
        """The steps at which the warm-up ends and the decay begins.

        `schedule_steps` is the length of the schedule; the decay ends there.
        """
        warmup = self.warmup_steps or round(self.warmup_share * schedule_steps)
        if self.schedule == "linear":
            return warmup, warmup
        decay = schedule_steps - round(self.decay_share * schedule_steps)
        # Of two shares that add up to 1, both may be rounded up.
        return warmup, decay if self.warmup_steps else max(warmup, decay)
