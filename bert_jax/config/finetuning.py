"""Configuration of a fine-tuning run: task, files, model."""

import dataclasses
from typing import Literal, Self

from bert_jax.config.checks import (
    RESOLVED,
    CheckedConfig,
    require,
    require_class_names,
    require_delimiter,
)
from bert_jax.config.distillation import DistillationConfig, check_teacher
from bert_jax.config.embedding import Embedding
from bert_jax.config.model import OWN_FIELDS, BertConfig
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.sentence_pairs import SentencePairsConfig
from bert_jax.config.training import RunConfig

TaskName = Literal[
    "text-classification",
    "text-regression",
    "token-classification",
    "question-answering",
    "multiple-choice",
    "sentence-pairs",
]
GlueName = Literal[
    "", "cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"
]


@dataclasses.dataclass(frozen=True, repr=False)
class ExamplesConfig(CheckedConfig):
    """The files of examples, and how examples become rows of tokens."""

    train: str = ""
    """Training file: .csv, .tsv, .jsonl (also .gz or .zst) or .parquet for texts, else
    the task's own format."""
    validation: str = ""
    """Validation file; empty: hold out a fraction of the training examples."""
    test: str = ""
    """File that the best checkpoint is scored on after training; not with path."""
    path: str = ""
    """Instead of train and validation: a directory that holds the files of a published
    dataset under their original names; of GLUE also tfds:glue/NAME."""
    glue: GlueName = ""
    """Name of the GLUE task in path; sets its columns and scores."""
    validation_fraction: float = 0.1
    """Fraction of the training examples held out if there is no validation file."""
    delimiter: str = ""
    """Separator of the columns of .csv and .tsv files, such as ; or tab; empty: the one
    that the header has."""
    skip_damaged: bool = False
    """Leave out rows that cannot be used (no text, no label, another number of fields),
    and count them; else they are refused."""
    text_columns: tuple[str, ...] = ()
    """Column (or JSON field) of the text; two of them for pairs of texts."""
    label_column: str | tuple[str, ...] = "label"
    """Column (or JSON field) of the class, the classes or the number to predict; or
    several columns of 0 and 1, each a class that a text has or not."""
    labels: tuple[str, ...] = ()
    """Class names, in order; empty: those of the training file, sorted."""
    multi_label: bool = False
    """Each text has any number of classes, joined by label_separator or in a list, as
    of JSON; always true with several columns of labels."""
    label_separator: str = "|"
    """With multi_label: separator between the classes of a text."""
    merge_labels: bool = False
    """Take class names that differ only in white space, case or Unicode normalisation
    for one, by the name that is most frequent in training."""
    label_names: tuple[str, ...] = ()
    """New names of a model's classes, each as OLD=NEW: LABEL_0=negative."""
    balance: bool = False
    """Repeat training texts of rare classes until each class has as many as the most
    frequent one."""
    max_length: int = 0
    """Maximum tokens per row, including special tokens; 0: the model's own, else 128,
    and 384 for question answering. Longer texts are truncated; longer documents and
    sentences to tag are split into several rows."""
    num_buckets: int = 4
    """Number of lengths (buckets) that batches are padded to; each compiles once."""
    document_stride: int = 128
    """Question answering: tokens between the starts of two rows of a document."""
    max_query_length: int = 64
    """Question answering: maximum tokens of a question; longer ones are truncated."""
    max_answer_length: int = 30
    """Question answering: maximum tokens of an answer."""
    num_best: int = 20
    """Question answering: number of candidate answers listed for each question."""
    null_threshold: float = 0.0
    """Question answering: predict no answer if null_odds are above this value;
    evaluation on unanswerable questions reports the best value."""
    sentence_pairs: SentencePairsConfig = SentencePairsConfig()
    embedding: Embedding = dataclasses.field(default=Embedding(), metadata=RESOLVED)
    """Sentence pairs: how the model makes a vector of a text; filled in at the start.
    """
    split: Literal["rows", "stratified"] = dataclasses.field(
        default="rows", metadata=RESOLVED
    )
    """How validation examples are held out: row by row, in runs that began before there
    was another rule; or equal texts together, and each class on both sides."""
    num_texts: int = dataclasses.field(default=0, metadata=RESOLVED)
    """Texts of an example, 1 or 2 for a pair, of tasks that take both; 0: not known."""
    fingerprint: str = dataclasses.field(default="", metadata=RESOLVED)
    """Hash of the training examples; filled in at the start, checked when resuming."""
    validation_fingerprint: str = dataclasses.field(default="", metadata=RESOLVED)
    """Hash of the validation examples; scores of others are not compared."""
    test_fingerprint: str = dataclasses.field(default="", metadata=RESOLVED)
    """Hash of the test examples, the same on all hosts; empty without data.test."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("num_buckets", "document_stride")
        self.require_positive("max_query_length", "max_answer_length", "num_best")
        require(
            self.max_length == 0 or self.max_length >= 8,
            f"max_length={self.max_length} must be at least 8, or 0 for the model's "
            "own.",
        )
        self.require_fraction("validation_fraction")
        require(
            len(self.text_columns) <= 2,
            f"text_columns names {len(self.text_columns)} columns; BERT takes one text "
            "or a pair.",
        )
        self._check_labels()
        require_delimiter(self.delimiter)
        files = bool(self.train or self.validation or self.test)
        require(
            not (self.glue and files),
            f"glue={self.glue} is read from path; give --data.path DIRECTORY, or use "
            "text-classification for files of your own.",
        )
        require(
            not (self.path and files),
            f"path={self.path} and files are both given; give only one of them.",
        )

    def _check_labels(self) -> None:
        require_class_names(self.labels)
        columns = self.label_columns
        require(
            0 < len(columns) == len(set(columns)),
            f"label_column={columns} must name one column, or several different ones.",
        )
        if len(columns) > 1:
            object.__setattr__(self, "multi_label", True)
            require(
                set(self.labels) in (set(), set(columns)),
                f"labels={self.labels} must be the columns of labels, "
                f"{', '.join(columns)}; leave labels out.",
            )
        require(
            bool(self.label_separator),
            "label_separator is empty; name the character between classes, such as |.",
        )

    @property
    def renamed(self) -> "ExamplesConfig":
        """The settings beside a model whose classes have their new names already."""
        return self.changed(label_names=())

    @property
    def label_columns(self) -> tuple[str, ...]:
        column = self.label_column
        return (column,) if isinstance(column, str) else column


@dataclasses.dataclass(frozen=True, repr=False)
class FinetuneConfig(RunConfig):
    """A fine-tuning run. Defaults are the paper's (Devlin et al. 2018, A.3)."""

    task: TaskName = "text-classification"
    """Task to train."""
    data: ExamplesConfig = ExamplesConfig()
    optimizer: OptimizerConfig = OptimizerConfig(
        peak_learning_rate=3e-5, warmup_steps=0, warmup_share=0.1
    )
    rate_by_size: bool = dataclasses.field(default=False, metadata=RESOLVED)
    """Whether peak_learning_rate is that for the model's size: none was named."""
    num_epochs: float = 3.0
    """Number of passes over the training examples, if num_steps is 0."""
    num_steps: int = 0
    """Total number of optimizer steps; 0: set by num_epochs."""
    batch_size: int = 32
    """Examples per optimizer step, over all devices and hosts."""
    from_scratch: bool = False
    """Initialise all parameters randomly; take only shape and tokenizer of init_from.
    A baseline that shows what pretraining contributes."""
    class_weights: Literal["none", "balanced"] = "none"
    """Weights of the classes in the loss: balanced, the number of texts divided by the
    number of classes and by the number of texts of the class."""
    compute_metrics: str = ""
    """MODULE:FUNCTION of your own that returns scores; its first one selects the best
    checkpoint."""
    teacher: str = ""
    """Learn from the scores of this model, too: fine-tuned on the same task, and named
    as init_from; empty: from the labels alone."""
    distillation: DistillationConfig = DistillationConfig()
    reinitialise_layers: int = 0
    """Number of top layers to reinitialise, with the pooler (Zhang et al. 2020)."""
    log_every: int = 20
    """Steps between two lines of training metrics."""
    eval_every: int = 0
    """Steps between two evaluations on the validation examples; 0: one epoch."""
    checkpoint_every: int = 0
    """Steps between two checkpoints; 0: as eval_every. The last step always has one,
    and each evaluation that is the best so far."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("num_epochs")
        self.require_not_negative("reinitialise_layers")
        self._check_labels()
        self._check_balance()
        self._check_pairs()
        check_teacher(self.teacher, self.distillation)
        temperature = self.distillation.temperature
        require(
            self.task != "text-regression"
            or temperature == DistillationConfig.temperature,
            f"distillation.temperature={temperature} has no effect with "
            "task=text-regression, whose score is a number; leave it out.",
        )

    def _check_labels(self) -> None:
        data, task = self.data, self.task
        several = data.label_column if len(data.label_columns) > 1 else ()
        for name, value in (
            ("label_column", several),
            ("merge_labels", data.merge_labels),
        ):
            require(
                task == "text-classification" or not value,
                f"data.{name}={value} has no effect with task={task}; it is for "
                "task=text-classification.",
            )

    def _check_pairs(self) -> None:
        if self.task != "sentence-pairs":
            return
        require(
            not self.teacher,
            f"teacher={self.teacher!r} cannot be used with task=sentence-pairs, which "
            "has no scores of classes; leave it out.",
        )
        require(
            self.data.sentence_pairs.objective != "contrastive" or self.batch_size > 1,
            f"batch_size={self.batch_size} leaves a pair alone in its batch, without "
            "another second text to tell its own from; it must be at least 2.",
        )

    def _check_balance(self) -> None:
        weights, balance = self.class_weights, self.data.balance
        name = f"class_weights={weights}" if weights != "none" else "data.balance=True"
        if weights == "none" and not balance:
            return
        require(
            self.task == "text-classification" and not self.data.multi_label,
            f"{name} needs one class for each text, and task={self.task}"
            f"{' with data.multi_label' if self.data.multi_label else ''} has none; "
            "leave it out.",
        )
        require(
            weights == "none" or not balance,
            f"{name} has no effect with data.balance, which makes all classes equally "
            "frequent; leave one of them out.",
        )

    def without_record(self) -> Self:
        """The settings for other examples, without what a run has filled in."""
        if not self.data.fingerprint:  # they are no record
            return self
        names = "fingerprint", "validation_fingerprint", "test_fingerprint"
        model = BertConfig(**{name: getattr(self.model, name) for name in OWN_FIELDS})
        return self.changed(data=dict.fromkeys(names, ""), model=model)
