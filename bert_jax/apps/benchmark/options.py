"""The options of each benchmark, for tyro or, if it is not installed, argparse."""

import dataclasses
from typing import TYPE_CHECKING, Literal

from bert_jax.config import PRESETS
from bert_jax.config.checks import require, require_types

if TYPE_CHECKING:
    Preset = str
else:
    Preset = Literal[tuple(PRESETS)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """Options of every benchmark."""

    json: str = ""
    """File for the figures, which are printed too."""

    def __post_init__(self) -> None:
        require_types(self)
        for name, value in vars(self).items():
            if type(value) is int:
                require(value >= 1, f"{name}={value} must be at least 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowOptions(BenchmarkOptions):
    """Options of every benchmark that has rows of its own."""

    sequence_length: int = 128
    """Tokens per row."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InferenceOptions(RowOptions):
    """Measure the encoder's hidden states and pooled vectors."""

    model: Preset = "base"
    """Size of the model."""
    batch_size: int = 8
    """Rows per step."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the computation."""
    repeats: int = 5
    """Number of turns of each program; medians are printed."""
    steps: int | None = None
    """Steps per turn, after one that is not timed; None: 2 on a CPU, else 20."""
    compare: Literal["torch"] | None = None
    """Time PyTorch and transformers in turn."""
    torch_compile: bool = False
    """Time PyTorch compiled as well."""
    threads: int | None = None
    """Threads of PyTorch on a CPU; None: one per core."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            bool(self.compare) or not self.torch_compile,
            "torch_compile=True has no effect without compare; pass --compare torch, "
            "too, or leave it out.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions:
    """What the training step does."""

    remat: Literal["none", "attention", "layer"] = "none"
    """What the backward pass recomputes to save memory."""
    microbatches: int = 1
    """Number of parts in which a batch is processed, one after another."""
    dropout: bool = True
    """Use dropout, also in PyTorch."""
    attention_dropout: bool = True
    """Use dropout of the attention probabilities, also in PyTorch."""
    attention_kernel: Literal["plain", "fused"] = "plain"
    """How attention is computed; see `model.attention_kernel`."""
    optimizer: Literal["adamw", "lamb", "muon"] = "adamw"
    """What updates the parameters; PyTorch has AdamW."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(StepOptions, InferenceOptions):
    """Measure the training step: masking, forward, backward, update."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileOptions(StepOptions, RowOptions):
    """Compile the training step for accelerators that need not be present."""

    topology: str
    """Accelerators, as v5e:2x4 or h200:8."""
    model: Preset = "base"
    """Size of the model."""
    batch_size: int = 64
    """Rows per step on each device."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Type of the computation."""
    fsdp: int = 1
    """Number of devices that share each parameter."""
    tensor: int = 1
    """Number of devices that share each layer's heads."""
    gather: Literal["layer", "step"] = "layer"
    """With fsdp: gather kernels where they are used, or all once a step."""
    overlap: bool = False
    """Reduce each gradient while the backward pass goes on."""
    reduce_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type in which gradients are summed over the devices."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputOptions(RowOptions):
    """Measure reading rows from memory-mapped shards to batches, in random order."""

    batch_size: int = 256
    """Rows per batch."""
    rows: int = 500_000
    """Rows of the dataset."""
    repeats: int = 5
    """Number of turns of each reader; medians are printed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareOptions(RowOptions):
    """Measure learning a vocabulary from text, and preparing rows."""

    input: tuple[str, ...] = ()
    """Text files; none: the documentation of the installed packages."""
    vocab_size: int = 8192
    """Number of entries of the vocabulary."""
