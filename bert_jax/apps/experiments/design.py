"""What an experiment is: variants of pretraining, and rows of measures of them."""

import dataclasses
from typing import Any, ClassVar, Literal

from bert_jax.config import BertConfig, FinetuneConfig, PretrainConfig
from bert_jax.config.serialization import with_changes as with_changes

Changes = tuple[tuple[str, Any], ...]
"""Dotted names of fields, and the values that replace those of the base."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of pretraining, from the parameters at the end of the stage before."""

    fraction: float = 1.0
    """Its fraction of the FLOPs."""
    changes: Changes = ()
    """What differs from the base configuration."""
    divisor: ClassVar[int] = 1
    """Its rows are this many times shorter than those of the budget."""


class HalfRows(Stage):
    """A stage on rows of half the length."""

    divisor = 2


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to pretrain."""

    name: str
    """The name of its directory."""
    pairs: Literal["nsp", "none"] = "nsp"
    """The rows: pairs of segments, or full sentences without pairs."""
    stages: tuple[Stage, ...] = (Stage(),)
    fractions: tuple[float, ...] = (1.0,)
    """Fractions of the FLOPs after which it is measured, ascending."""
    rates: tuple[float, ...] = ()
    """Learning rates to choose from by the validation loss of a seed that is not
    measured; empty: that of the base."""
    num_averaged: ClassVar[int] = 1
    """Its model is the mean of this many last checkpoints."""

    def kind(self, stage: Stage) -> str:
        """Return the kind of rows that a stage is trained on."""
        return self.pairs + "_half" * (stage.divisor == 2)


class Averaged(Variant):
    """A variant of which three checkpoints of the last tenth are averaged."""

    num_averaged = 3


@dataclasses.dataclass(frozen=True)
class TaskScore:
    """The score of the variant on a task after fine-tuning."""

    task: str
    changes: Changes = ()

    @property
    def column(self) -> str:
        return f"{self.task}, fine-tuned"


@dataclasses.dataclass(frozen=True)
class Probe:
    """The score of logistic regression on hidden states, without fine-tuning."""

    task: str
    layers: tuple[int, ...] = (-1,)
    combine: Literal["concatenate", "sum"] = "concatenate"
    pooling: Literal["cls", "mean"] = "mean"

    @property
    def column(self) -> str:
        return f"{self.task}, features"


@dataclasses.dataclass(frozen=True)
class MaskedTokens:
    """The perplexity of masked tokens of the validation rows, always the same ones."""

    name: str
    changes: Changes = ()

    @property
    def column(self) -> str:
        return f"perplexity, {self.name}"


@dataclasses.dataclass(frozen=True)
class PairAccuracy:
    """The accuracy of the pairs of the validation rows, with the same masks."""

    column: ClassVar[str] = "next sentence"
    changes: ClassVar[Changes] = ()


Measure = TaskScore | Probe | MaskedTokens | PairAccuracy


@dataclasses.dataclass(frozen=True)
class RowSpec:
    """A row of the table: measures of one variant."""

    name: str
    """As in the table."""
    variant: str
    measures: tuple[Measure, ...]
    base: str = ""
    """The row that it is compared with; empty: the first, which has none."""
    paper: tuple[tuple[str, float], ...] = ()
    """Figures of the paper, by the names in `Experiment.paper`."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The table of a paper, and what makes its rows."""

    name: str
    title: str
    source: str
    variants: tuple[Variant, ...]
    rows: tuple[RowSpec, ...]
    paper: str = ""
    """What the paper's figures are scores of, with their source."""

    def base_of(self, row: RowSpec) -> str:
        """Return the name of the row that a row is compared with; empty: none."""
        first = self.rows[0].name
        return row.base or ("" if row.name == first else first)


@dataclasses.dataclass(frozen=True)
class Budget:
    """How much is spent, and the configurations that this is spent on."""

    name: str
    flops: float
    """Model FLOPs of the pretraining of each variant and seed."""
    seeds: int
    pretraining: PretrainConfig
    finetuning: FinetuneConfig
    sequence_length: int
    vocab_size: int

    @property
    def model(self) -> BertConfig:
        return self.pretraining.model
