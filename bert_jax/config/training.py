"""A training run: what on, with which masks, by which optimizer, on which devices."""

import dataclasses
import math
import re
from typing import Literal

from bert_jax.config.checks import (
    require,
    require_fraction,
    require_not_negative,
    require_positive,
    require_seed,
    require_types,
)
from bert_jax.config.model import BertConfig


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
    """Which tokens the model must predict (Devlin et al. 2018, §3.1, Task #1)."""

    rate: float = 0.15
    """Share of a row's tokens to predict; its length counts [CLS] and [SEP]."""
    max_predictions: int = 20
    """Prediction slots P a row; rows due fewer fill the rest with weight 0."""
    unit: Literal["token", "whole_word", "span"] = "token"
    """What is hidden together: single tokens, whole words, or runs of words of
    geometric length (Joshi et al. 2019, §3.1)."""
    mask_share: float = 0.8
    """Share of the predictions shown as [MASK]."""
    random_share: float = 0.1
    """Share shown as a random token; the rest is shown as it is."""
    span_probability: float = 0.2
    """With unit span: that a span ends after each of its words."""
    max_span: int = 10
    """With unit span: the most words a span."""
    mask_token_id: int | None = None
    """Id of [MASK]; None: as the dataset's tokenizer says."""
    vocab_size: int | None = None
    """Random replacements are drawn from so many ids; None: as the tokenizer says."""

    def __post_init__(self) -> None:
        require_types(self)
        require(0 < self.rate < 1, f"rate={self.rate} must be between 0 and 1.")
        require_positive(self, "max_predictions", "max_span")
        for name in ("mask_share", "random_share"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name}={value} must be from 0 to 1.")
        shares = self.mask_share + self.random_share
        require(
            shares <= 1 + 1e-9,
            f"mask_share={self.mask_share} and random_share={self.random_share} "
            "must add up to at most 1.",
        )
        p = self.span_probability
        require(0 < p <= 1, f"span_probability={p} must be above 0 and at most 1.")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What to train on."""

    path: str = ""
    """Directory made by `bert-jax prepare`."""
    sequence_length: int = 128
    """Tokens a row; must be the dataset's."""
    fingerprint: str = ""
    """Of the dataset's content; filled in at the start, checked on resuming."""
    pairs: Literal["", "nsp", "sop", "none"] = ""
    """What the dataset's pairs teach; filled in at the start."""
    first_step: int = 0
    """Step at which the order of rows begins; filled in by keep_optimizer."""

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "sequence_length")
        require_not_negative(self, "first_step")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with linear warm-up and linear decay (Devlin et al. 2018, A.2), or LAMB."""

    algorithm: Literal["adamw", "lamb"] = "adamw"
    """lamb: each kernel's and embedding's update has the kernel's own norm, for batches
    of tens of thousands of rows (You et al. 2020, Alg. 2)."""
    peak_learning_rate: float = 1e-4
    """Reached at the end of the warm-up."""
    warmup_steps: int = 10_000
    """Steps from 0 to the peak."""
    warmup_share: float = 0.0
    """With warmup_steps=0: the share of the schedule from 0 to the peak."""
    decay_steps: int = 0
    """Step at which the learning rate is back at 0; 0: at num_steps."""
    weight_decay: float = 0.01
    """On kernels and embeddings; biases and LayerNorm are not decayed."""
    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.999
    """Decay of the second moment."""
    epsilon: float = 1e-6
    """Added to the root of the second moment."""
    max_grad_norm: float = 1.0
    """The global gradient is scaled down to this norm."""
    layer_decay: float = 1.0
    """Each layer learns at this multiple of the rate of the one above it; the heads at
    the full rate, the embeddings below the first layer (Clark et al. 2020, A)."""
    frozen_layers: int = 0
    """So many of the lowest layers, and the embeddings with them, stay as they are."""

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "peak_learning_rate", "epsilon", "max_grad_norm")
        require_not_negative(self, "weight_decay", "warmup_steps", "decay_steps")
        require_not_negative(self, "frozen_layers")
        require_fraction(self, "beta1", "beta2", "warmup_share")
        share = self.layer_decay
        require(0 < share <= 1, f"layer_decay={share} must be above 0 and at most 1.")


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """How the devices are arranged: `data` times `fsdp` times `tensor` of them."""

    data: int = -1
    """Groups that share a batch and hold parameters of their own; -1: all the rest."""
    fsdp: int = 1
    """Devices that share a batch, and the parameters too (Zhao et al. 2023)."""
    tensor: int = 1
    """Devices that share each layer's heads and feed-forward width (Shoeybi et al.
    2019); must divide both."""

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "fsdp", "tensor")
        require(
            self.data == -1 or self.data > 0,
            f"data={self.data} must be greater than 0, or -1 for every device.",
        )


def steps_between(told: str) -> range:
    """The steps that FIRST:LAST names, both included; empty where it does not."""
    found = re.fullmatch(r"(\d+):(\d+)", told)
    return range(int(found[1]), int(found[2]) + 1) if found else range(0)


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What every training run is told."""

    model: BertConfig = BertConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    mesh: MeshConfig = MeshConfig()
    num_steps: int = 900_000
    """Optimizer steps to run to."""
    batch_size: int = 256
    """Rows an optimizer step, over all devices and hosts."""
    microbatches: int = 1
    """Parts that a batch is worked through in, one after another, to save memory; the
    update is that of the whole batch."""
    init_from: str = ""
    """Workdir, checkpoint, Hugging Face directory or hf:OWNER/NAME@REVISION to take the
    parameters from; empty: drawn by the seed."""
    allow_extra: bool = False
    """With init_from: leave tensors of a Hugging Face directory aside that its model
    does not have."""
    seed: int = 0
    """Of initialisation, data order, masks and dropout."""
    log_every: int = 100
    """Steps between two training lines."""
    eval_every: int = 10_000
    """Steps between two evaluations on the validation rows."""
    checkpoint_every: int = 10_000
    """Steps between two checkpoints; the last step always has one."""
    keep_checkpoints: int = 2
    """How many of the newest to keep, beside the best."""
    max_failed_saves: int = 5
    """Checkpoints in a row that may fail to be written before the run ends; each is
    tried again."""
    hang_timeout_minutes: float = 60.0
    """Abort, with the stack of each thread, where no step ends for so long after the
    first; 0: wait for ever."""
    log_examples: bool = False
    """Write the row numbers of each step to examples.jsonl."""
    profile_steps: str = ""
    """FIRST:LAST, as 10:15: trace these steps, both included, into WORKDIR/profile."""

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "batch_size", "microbatches", "log_every")
        require_positive(self, "keep_checkpoints")
        require_positive(self, "max_failed_saves")
        require_not_negative(self, "num_steps", "eval_every", "checkpoint_every")
        require_not_negative(self, "hang_timeout_minutes")
        require_seed(self)
        if self.num_steps:
            self._check_schedule()
        self._check_mesh()
        self._check_profile()

    def _check_schedule(self) -> None:
        end, warmup = self.schedule_steps, self.optimizer.warmup_steps
        require(
            warmup <= end,
            f"optimizer.warmup_steps={warmup} is more than the {end} steps of the "
            "schedule; lower it to at most that.",
        )
        require(
            end >= self.num_steps,
            f"optimizer.decay_steps={end} is less than num_steps={self.num_steps}; "
            "the learning rate would be 0 before the end.",
        )

    def _check_mesh(self) -> None:
        """The axes must divide what lies over them."""
        for axis, width in (
            ("fsdp", "hidden_size"),
            ("tensor", "num_attention_heads"),
            ("tensor", "intermediate_size"),
        ):
            parts, whole = getattr(self.mesh, axis), getattr(self.model, width)
            require(
                whole % parts == 0,
                f"mesh.{axis}={parts} does not divide model.{width}={whole}; "
                f"{math.gcd(parts, whole)} would.",
            )

    def _check_profile(self) -> None:
        told = self.profile_steps
        steps, end = steps_between(told), self.num_steps or math.inf
        require(
            not told or 0 < steps.start < steps.stop <= end + 1,
            f"profile_steps={told} must be FIRST:LAST, two steps of the run, as in "
            f"10:15; steps are counted from 1{f' to {end}' if self.num_steps else ''}.",
        )

    @property
    def schedule_steps(self) -> int:
        """The step at which the learning rate is back at 0."""
        return self.optimizer.decay_steps or self.num_steps

    @property
    def rows_at_once(self) -> int:
        """Of a microbatch. What is worked through in parts is too large to be evaluated
        as a whole."""
        return self.batch_size // self.microbatches


@dataclasses.dataclass(frozen=True)
class PretrainConfig(RunConfig):
    """A pretraining run. Defaults are the paper's first phase, except its hardware."""

    data: DataConfig = DataConfig()
    masking: MaskingConfig = MaskingConfig()
    eval_rows: int = 65_536
    """Validation rows that an evaluation takes: the first ones, which are in random
    order; 0: all."""
    keep_optimizer: bool = False
    """With init_from: take its optimizer and step too; the schedule counts on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "num_steps", "eval_every", "checkpoint_every")
        require_not_negative(self, "eval_rows")
        require(
            self.data.sequence_length <= self.model.max_position_embeddings,
            f"data.sequence_length={self.data.sequence_length} is more than "
            f"model.max_position_embeddings={self.model.max_position_embeddings}; "
            "prepare shorter rows or raise the latter.",
        )
        require(
            self.model.head == "pretraining",
            f"model.head={self.model.head} has nothing to pretrain; leave it out.",
        )
        require(
            bool(self.init_from) or not self.keep_optimizer,
            "keep_optimizer needs init_from; name the run to go on from.",
        )
