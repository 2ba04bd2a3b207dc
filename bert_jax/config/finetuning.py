"""A fine-tuning run: which task, on which files, from which model."""

import dataclasses
from typing import Literal

from bert_jax.config.checks import (
    require,
    require_class_names,
    require_fraction,
    require_not_negative,
    require_positive,
    require_types,
)
from bert_jax.config.training import OptimizerConfig, RunConfig

TaskName = Literal[
    "text-classification",
    "text-regression",
    "token-classification",
    "question-answering",
    "multiple-choice",
]
GlueName = Literal[
    "", "cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"
]


@dataclasses.dataclass(frozen=True)
class ExamplesConfig:
    """Where the examples are, and how they become rows of tokens."""

    train: str = ""
    """File to learn from: .csv, .tsv or .jsonl of texts; the task's own format else."""
    validation: str = ""
    """File to score on; empty: a share of the training examples is held out."""
    path: str = ""
    """Directory with the files of a published dataset under their own names, or
    tfds:NAME; instead of the two."""
    glue: GlueName = ""
    """Which of GLUE's tasks `path` holds; its columns and scores are then known."""
    validation_fraction: float = 0.1
    """Share of the training examples held out where there is no validation file."""
    text_columns: tuple[str, ...] = ()
    """One or two columns (fields) with the text, or the pair of texts."""
    label_column: str = "label"
    """Column (field) with the class, classes or number."""
    labels: tuple[str, ...] = ()
    """The classes, in order; empty: those of the training file, sorted."""
    multi_label: bool = False
    """A text has any number of classes, joined by label_separator or in a list."""
    label_separator: str = "|"
    """Between the classes of one text, with multi_label."""
    max_length: int = 128
    """Most tokens a row, special tokens included. Longer texts are cut; longer
    documents and sentences to tag are spread over several rows."""
    num_buckets: int = 4
    """Lengths that batches are padded to, each compiled once."""
    document_stride: int = 128
    """Question answering: tokens between the starts of two rows of a document."""
    max_query_length: int = 64
    """Question answering: longer questions are cut to so many tokens."""
    max_answer_length: int = 30
    """Question answering: most tokens an answer."""
    num_best: int = 20
    """Question answering: answers listed for a question."""
    null_threshold: float = 0.0
    """Question answering: a question is taken for unanswerable where its null_odds are
    greater; scores on a file with such questions say which value would be best."""
    fingerprint: str = ""
    """Of the training examples; filled in at the start, checked on resuming."""

    def __post_init__(self) -> None:
        require_types(self)
        numbers = (
            "max_length num_buckets document_stride max_query_length "
            "max_answer_length num_best"
        )
        require_positive(self, *numbers.split())
        require(
            self.max_length >= 8, f"max_length={self.max_length} must be at least 8."
        )
        require_fraction(self, "validation_fraction")
        require(
            len(self.text_columns) <= 2,
            f"text_columns names {len(self.text_columns)} columns; BERT takes one text "
            "or a pair.",
        )
        require_class_names(self.labels)
        files = bool(self.train or self.validation)
        require(
            not (self.path and files),
            f"path={self.path} is given beside files; give either.",
        )
        require(
            not (self.glue and files),
            f"glue={self.glue} is read from path; give that instead of files.",
        )


@dataclasses.dataclass(frozen=True)
class FinetuneConfig(RunConfig):
    """A fine-tuning run. Defaults are the paper's (Devlin et al. 2018, A.3)."""

    task: TaskName = "text-classification"
    """What is learned."""
    data: ExamplesConfig = ExamplesConfig()
    optimizer: OptimizerConfig = OptimizerConfig(
        peak_learning_rate=3e-5, warmup_steps=0, warmup_share=0.1
    )
    num_epochs: float = 3.0
    """Passes over the training examples, where num_steps is 0."""
    num_steps: int = 0
    """Optimizer steps to run to; 0: as num_epochs says."""
    batch_size: int = 32
    """Examples an optimizer step, over all devices and hosts."""
    from_scratch: bool = False
    """Draw every parameter anew: init_from gives shape and tokenizer alone. What
    pretraining is worth shows beside it."""
    reinitialise_layers: int = 0
    """Draw so many of the topmost layers, and the pooler, anew (Zhang et al. 2020)."""
    log_every: int = 20
    """Steps between two training lines."""
    eval_every: int = 0
    """Steps between two evaluations on the validation examples; 0: an epoch."""
    checkpoint_every: int = 0
    """Steps between two checkpoints; 0: an epoch. The last step always has one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "num_epochs")
        require_not_negative(self, "reinitialise_layers")
