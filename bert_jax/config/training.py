"""Configuration of a training run: data, masking, mesh, steps."""

import dataclasses
import math
import re
from typing import Literal

from bert_jax.config.checks import RESOLVED, CheckedConfig, require, require_seed
from bert_jax.config.distillation import PretrainDistillationConfig, check_teacher
from bert_jax.config.model import BertConfig
from bert_jax.config.optimizer import OptimizerConfig


@dataclasses.dataclass(frozen=True, repr=False)
class MaskingConfig(CheckedConfig):
    """Masking of tokens to predict (Devlin et al. 2018, §3.1, Task #1)."""

    rate: float = 0.15
    """Fraction of a row's tokens to predict, counted with [CLS] and [SEP]."""
    max_predictions: int | None = None
    """Maximum predictions per row, P; unused slots have weight 0. None: as many as the
    rate needs in a full row."""
    final_rate: float | None = None
    """Fraction to predict at the last step: the fraction changes linearly from `rate`
    at the first step (Yang et al. 2023); None: always `rate`. Validation rows always
    have `rate`."""
    unit: Literal["token", "whole_word", "span"] = "token"
    """Unit of masking: single tokens, whole words,
    or spans of words of geometric length (Joshi et al. 2019, §3.1)."""
    mask_share: float = 0.8
    """Fraction of predicted tokens that are replaced by [MASK]."""
    random_share: float = 0.1
    """Fraction of predicted tokens replaced by a random token; the rest is kept."""
    span_probability: float = 0.2
    """With unit=span: probability that a span ends after each of its words."""
    max_span: int = 10
    """With unit=span: maximum number of words in a span."""
    mask_token_id: int | None = dataclasses.field(default=None, metadata=RESOLVED)
    """Id of [MASK]; None: from the dataset's tokenizer."""
    vocab_size: int | None = dataclasses.field(default=None, metadata=RESOLVED)
    """Number of ids to draw random tokens from; None: from the dataset's tokenizer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.rate < 1, f"rate={self.rate} must be between 0 and 1.")
        final = self.final_rate
        holds = final is None or 0 < final < 1
        require(holds, f"final_rate={final} must be between 0 and 1.")
        given = [] if self.max_predictions is None else ["max_predictions"]
        self.require_positive(*given, "max_span")
        masked, random = self.mask_share, self.random_share
        require(0 <= masked <= 1, f"mask_share={masked} must be from 0 to 1.")
        require(0 <= random <= 1, f"random_share={random} must be from 0 to 1.")
        rule = "must add up to at most 1"
        holds = masked + random <= 1 + 1e-9
        require(holds, f"mask_share={masked} and random_share={random} {rule}.")
        p = self.span_probability
        require(0 < p <= 1, f"span_probability={p} must be above 0 and at most 1.")

    def needed_predictions(self, length: int) -> int:
        """Return the predictions of a row of `length` tokens at the larger rate."""
        return max(1, round(max(self.rate, self.final_rate or 0) * length))

    def num_slots(self, length: int) -> int:
        """Return P for rows of `length` tokens."""
        given = self.max_predictions or self.needed_predictions(length)
        return min(given, length)

    def cap(self, length: int) -> str:
        """Return what `max_predictions` caps in rows of `length` tokens, or ""."""
        slots, needed = self.num_slots(length), self.needed_predictions(length)
        if slots >= needed:
            return ""
        return (
            f"masking.max_predictions={slots} caps it at {slots / length:.1%}, since a "
            f"full row needs {needed}; leave it out, or raise it"
        )


@dataclasses.dataclass(frozen=True, repr=False)
class DataConfig(CheckedConfig):
    """The dataset to train on."""

    path: str = ""
    """Directory of the dataset, written by `bert-jax prepare`."""
    sequence_length: int = 0
    """Tokens per row; 0: as the dataset."""
    fingerprint: str = dataclasses.field(default="", metadata=RESOLVED)
    """Hash of the dataset's content; filled in at the start, checked when resuming."""
    pairs: Literal["", "nsp", "sop", "none"] = dataclasses.field(
        default="", metadata=RESOLVED
    )
    """Objective of the dataset's pairs; filled in at the start."""
    first_step: int = dataclasses.field(default=0, metadata=RESOLVED)
    """Step at which the order of rows begins; filled in with keep_optimizer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_not_negative("sequence_length", "first_step")


@dataclasses.dataclass(frozen=True, repr=False)
class MeshConfig(CheckedConfig):
    """Mesh of `data` times `fsdp` times `tensor` devices."""

    data: int = -1
    """Devices that shard the batch and replicate parameters; -1: all remaining ones."""
    fsdp: int = 1
    """Devices that shard both the batch and the parameters (Zhao et al. 2023)."""
    tensor: int = 1
    """Devices that shard the heads and feed-forward width of each layer;
    must divide both (Shoeybi et al. 2019)."""
    gather: Literal["layer", "step"] = "layer"
    """When devices gather parameters that are sharded over fsdp: each kernel where a
    layer uses it, for the least memory, or all once a step, for the fewest collectives
    (ZeRO-3 and ZeRO-1 of Rajbhandari et al. 2020)."""
    overlap: bool = False
    """On TPUs, reduce each gradient while the backward pass goes on; GPUs always do.
    With several microbatches it has no effect."""
    reduce_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type in which gradients are summed over devices that have the same parameters;
    bfloat16 halves what is sent, and rounds each sum."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("fsdp", "tensor")
        require(
            self.data == -1 or self.data > 0,
            f"data={self.data} must be greater than 0, or -1 for every device.",
        )


def check_widths(mesh: MeshConfig, model: BertConfig, prefix: str) -> None:
    """Raise ValueError unless the axes of a mesh divide the widths of a model.

    The message has `prefix` before the name of a width.
    """
    for axis, width in (
        ("fsdp", "hidden_size"),
        ("tensor", "num_attention_heads"),
        ("tensor", "intermediate_size"),
    ):
        devices, size = getattr(mesh, axis), getattr(model, width)
        require(
            size % devices == 0,
            f"mesh.{axis}={devices} does not divide {prefix}{width}={size}; "
            f"{math.gcd(devices, size)} would.",
        )


def parse_step_range(text: str) -> range:
    """The steps of FIRST:LAST, both included; empty if `text` is anything else."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    return range(int(match[1]), int(match[2]) + 1) if match else range(0)


@dataclasses.dataclass(frozen=True, repr=False)
class RunConfig(CheckedConfig):
    """Configuration that all training runs share."""

    model: BertConfig = BertConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    mesh: MeshConfig = MeshConfig()
    num_steps: int = 900_000
    """Total number of optimizer steps."""
    batch_size: int = 256
    """Rows per optimizer step, over all devices and hosts."""
    microbatches: int = 1
    """Number of parts in which a batch is processed, one after another, to save memory;
    the update is that of the whole batch."""
    init_from: str = ""
    """Initial parameters: a workdir, checkpoint, Hugging Face directory
    or hf:OWNER/NAME, with @REVISION for another branch than main; empty: random, in
    pretraining alone. The run records the commit."""
    allow_extra: bool = False
    """Ignore tensors of a Hugging Face model to start from, or to learn from, that are
    not used here."""
    seed: int = 0
    """Seed of initialisation, data order, masks and dropout."""
    log_every: int = 100
    """Steps between two lines of training metrics."""
    eval_every: int = 10_000
    """Steps between two evaluations on the validation rows."""
    checkpoint_every: int = 10_000
    """Steps between two checkpoints; the last step always has one."""
    keep_checkpoints: int = 2
    """Number of newest checkpoints to keep, besides the best one."""
    keep_optimizer_states: Literal["all", "none"] = "all"
    """Checkpoints of a finished run that keep the state of the optimizer. With none
    they take a third of the disk; the run cannot be extended or forked any more."""
    patience: int = 0
    """Stop after so many evaluations in a row without a better score; 0: never."""
    report: tuple[Literal["tensorboard", "csv", "wandb"], ...] = ("tensorboard",)
    """Where the metrics go besides metrics.jsonl, which is always written: tensorboard,
    csv (metrics.csv), or wandb (Weights & Biases)."""
    max_failed_saves: int = 5
    """Number of failed saves in a row that ends the run; each is retried."""
    hang_timeout_minutes: float = 60.0
    """Abort, with all stacks, if no step after the first ends for so long; 0: never."""
    first_step_timeout_minutes: float = 120.0
    """The same until the first step has ended, which compiles the step; 0: never."""
    log_examples: bool = False
    """Write the row numbers of each step to examples.jsonl."""
    profile_steps: str = ""
    """FIRST:LAST, such as 10:15: trace these steps (inclusive) to WORKDIR/profile."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("batch_size", "microbatches", "log_every")
        self.require_positive("keep_checkpoints", "max_failed_saves")
        self.require_not_negative("num_steps", "eval_every", "checkpoint_every")
        self.require_not_negative("hang_timeout_minutes", "first_step_timeout_minutes")
        self.require_not_negative("patience")
        require_seed(self)
        if self.num_steps:
            self._check_schedule()
        require(
            self.mesh.tensor == 1 or self.model.attention_kernel == "plain",
            f"mesh.tensor={self.mesh.tensor} cannot be used with "
            "model.attention_kernel=fused, which the compiler cannot split; set "
            "mesh.tensor to 1, or model.attention_kernel to plain.",
        )
        if not self.init_from:
            self.check_shape()
        self._check_profile()

    def _check_schedule(self) -> None:
        end, warmup = self.schedule_steps, self.optimizer.warmup_steps
        require(
            warmup <= end,
            f"optimizer.warmup_steps={warmup} is more than the {end} steps of the "
            "schedule; lower it to at most that, or set optimizer.decay_steps to "
            f"{warmup} or more, as a run that has begun can.",
        )
        require(
            end >= self.num_steps,
            f"optimizer.decay_steps={end} is less than num_steps={self.num_steps}; "
            "the learning rate would be 0 before the end. Raise it to that, or leave "
            "it at 0, which means num_steps.",
        )
        share, (_, decay) = self.optimizer.decay_share, self.optimizer.phases(end)
        require(
            warmup <= decay,
            f"optimizer.warmup_steps={warmup} is more than the {decay} steps before "
            f"the decay of optimizer.decay_share={share}; lower either.",
        )

    def check_shape(self) -> None:
        """Check that mesh and rows fit the model's shape.

        With `init_from`, that of its model is not known before it is read.
        """
        check_widths(self.mesh, self.model, "model.")

    def _check_profile(self) -> None:
        text = self.profile_steps
        steps, end = parse_step_range(text), self.num_steps or math.inf
        require(
            not text or 0 < steps.start < steps.stop <= end + 1,
            f"profile_steps={text} must be FIRST:LAST, two steps of the run, as in "
            f"10:15; steps are counted from 1{f' to {end}' if self.num_steps else ''}.",
        )

    @property
    def schedule_steps(self) -> int:
        """The step at which the learning rate has decayed to 0."""
        return self.optimizer.decay_steps or self.num_steps

    @property
    def microbatch_size(self) -> int:
        """Rows of a microbatch; evaluation uses it too, to need no more memory."""
        return self.batch_size // self.microbatches


@dataclasses.dataclass(frozen=True, repr=False)
class PretrainConfig(RunConfig):
    """A pretraining run. The defaults are the paper's first phase."""

    model: BertConfig = BertConfig(vocab_size=0)
    data: DataConfig = DataConfig()
    masking: MaskingConfig = MaskingConfig()
    objective: Literal["masked_lm", "causal_lm"] = "masked_lm"
    """What is learned from the tokens: masked_lm, the masked ones, or causal_lm, each
    token from those before it (Radford et al. 2018), which needs
    model.attention=causal and rows without pairs."""
    pair_loss: bool = True
    """Learn from the labels of the dataset's pairs; with no, from the tokens alone
    (Liu et al. 2019, §4.2)."""
    eval_rows: int = 65_536
    """Number of validation rows per evaluation (the same random ones); 0: all."""
    keep_optimizer: bool = False
    """With init_from: also take optimizer state and step; the schedule continues."""
    teacher: str = ""
    """Learn from this model, too: as init_from, with the dataset's tokenizer; empty:
    from the text alone."""
    distillation: PretrainDistillationConfig = PretrainDistillationConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("num_steps", "eval_every", "checkpoint_every")
        self.require_not_negative("eval_rows")
        require(
            self.model.head == "pretraining",
            f"model.head={self.model.head} cannot be pretrained; leave it out.",
        )
        require(
            bool(self.init_from) or not self.keep_optimizer,
            "keep_optimizer needs init_from; name the run to continue from.",
        )
        self._check_objective()
        self._check_final_rate()
        check_teacher(self.teacher, self.distillation)

    def check_shape(self) -> None:
        super().check_shape()
        require(
            self.data.sequence_length <= self.model.max_position_embeddings,
            f"data.sequence_length={self.data.sequence_length} is more than "
            f"model.max_position_embeddings={self.model.max_position_embeddings}; "
            "prepare shorter rows or raise the latter.",
        )

    def _check_objective(self) -> None:
        is_causal = self.objective == "causal_lm"
        needed = "causal" if is_causal else "bidirectional"
        require(
            self.model.attention == needed,
            f"objective={self.objective} cannot be learned with "
            f"model.attention={self.model.attention}; set it to {needed}, or choose "
            "the other objective.",
        )
        require(
            not is_causal or self.data.pairs in ("", "none"),
            f"data.pairs={self.data.pairs} cannot be used with objective=causal_lm; "
            "prepare the text by `bert-jax prepare --pairs none`.",
        )
        require(
            not is_causal or self.masking.final_rate is None,
            f"masking.final_rate={self.masking.final_rate} has no effect with "
            "objective=causal_lm, which masks nothing; leave it out.",
        )

    def _check_final_rate(self) -> None:
        masking, length = self.masking, self.data.sequence_length
        if masking.final_rate is None or masking.max_predictions is None:
            return
        name = "rate" if masking.rate >= masking.final_rate else "final_rate"
        rate = getattr(masking, name)
        due = round(rate * length)
        require(
            due <= masking.max_predictions,
            f"masking.max_predictions={masking.max_predictions} is less than the {due} "
            f"tokens to predict of {length} at masking.{name}={rate}; raise it to "
            f"{due}.",
        )
