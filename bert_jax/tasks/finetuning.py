"""One kind of fine-tuning: from a file to its scores, and as a task for the loop."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from bert_jax.config import BertConfig, ExamplesConfig, FinetuneConfig
from bert_jax.config.finetuning import TaskName
from bert_jax.config.model import Head, Params, ProblemType
from bert_jax.data.batches import ExampleBatches
from bert_jax.data.examples import TokenizedExamples, num_cut
from bert_jax.data.pipeline import Batch
from bert_jax.model.bert import init_params
from bert_jax.model.distillation import score_divergence
from bert_jax.model.flops import finetuning_flops
from bert_jax.model.losses import Sum, cross_entropy, weighted_sum
from bert_jax.tables.read import source_rows
from bert_jax.tables.rows import TableRow
from bert_jax.tasks.class_names import similar_label_warnings
from bert_jax.tasks.distillation import DISTILLATION_LOSS, TEACHER, Teacher
from bert_jax.tasks.head_scores import head_scores
from bert_jax.tasks.lengths import TAKES_NO_MORE, cut_lines, row_length
from bert_jax.tasks.predictions import (
    Example,
    Prediction,
    Predictions,
    Split,
    SplitOutputs,
    Splits,
    by_row,
    main_score,
)
from bert_jax.tasks.reporting.analysis import Analysis
from bert_jax.tasks.task import NO_WEIGHTS, Counts, DeviceBatch, Evaluation, Sums, Task
from bert_jax.tokenization import Tokenizer

_LABEL_LOSS = "label_loss"


@dataclasses.dataclass(frozen=True)
class Training:
    """What a fine-tuning task trains on, on one host's shard of the rows."""

    config: FinetuneConfig
    """With `num_steps`."""
    train: Split
    validation: Split
    host_index: int = 0
    host_count: int = 1
    own_scores: Callable[[Predictions], dict[str, float]] | None = None
    """Scores of the user's, before the official ones; all processes call it."""
    teacher: Teacher | None = None
    scores_start: bool = False
    """Whether to score the parameters before the first step: none is random then."""


@dataclasses.dataclass(frozen=True)
class FinetuningTask(Task):
    """One kind of fine-tuning, from a file to its scores, and what trains on it.

    `read` → examples; `tokenize` → rows; the model's scores of rows; `outputs`, on the
    device; `predict` → predictions; `official_scores` and `write`. All are pure but
    `read` and `write`. With `training`, it is a task for the loop, too.
    """

    data: ExamplesConfig
    model: BertConfig = dataclasses.field(default_factory=BertConfig)
    """The model with the task's head and labels, once the labels are known."""
    training: Training | None = dataclasses.field(
        default=None, compare=False, repr=False
    )
    """None: nothing is trained."""
    divergence = staticmethod(score_divergence)
    """Of a student's scores from those of a teacher, by a temperature."""
    one_shape = False
    takes_sharded_kernels = True
    name: ClassVar[TaskName]
    head: ClassVar[Head]
    problem_type: ClassVar[ProblemType] = "single_label_classification"
    analyses: ClassVar[Mapping[str, Analysis]]
    """The error reports of the kind, by the `kind` that they say."""
    noun: ClassVar[str] = "texts"
    """What examples are called in messages."""
    length_option: ClassVar[str] = "max_length"
    """The field of `data` that limits the tokens of an example."""

    @classmethod
    def suits(cls, data: ExamplesConfig, model: BertConfig | None) -> bool:
        """Return whether it is the kind of its name for these files and this model.

        The model is fine-tuned; None: not known yet.
        """
        return True

    def report_kind(self, predictions: Predictions) -> str:
        """Return which of `analyses` is of these predictions; default: the only one."""
        (kind,) = self.analyses
        return kind

    @abc.abstractmethod
    def read(self, name: str) -> list[Example]:
        """Read a file, or a split of `data.path`: "train", "validation" or "test".

        Examples have labels if the file has them. A ValueError names file and line.
        """

    @abc.abstractmethod
    def labels(self, examples: Sequence[Example]) -> tuple[str, ...]:
        """Return the classes of training examples in order; () if the head has none.

        Raise ValueError if nothing can be learned from these examples.
        """

    @abc.abstractmethod
    def check(self, examples: Sequence[Example]) -> None:
        """Raise ValueError if the model does not have the label of an example."""

    def targets(self, examples: Sequence[Example]) -> tuple[float, float]:
        """Return mean and deviation of the numbers to learn; 0 and 1 leave them."""
        return 0.0, 1.0

    def match_labels(self, examples: Sequence[Example]) -> Sequence[Example]:
        """Return the examples with the model's names of their labels.

        By default, they are the names in the file. Raise ValueError where `check` does.
        """
        self.check(examples)
        return examples

    def label_warnings(self, examples: Sequence[Example]) -> list[str]:
        """Return a line for each kind of class name that may be a mistake.

        The classes were inferred from the examples, which have the file's names.
        """
        return similar_label_warnings(self.model.labels)

    @abc.abstractmethod
    def tokenize(
        self, examples: Sequence[Example], tokenizer: Tokenizer
    ) -> TokenizedExamples:
        """Return one or more rows per example, in the order of the examples."""

    def scores(
        self,
        params: Params,
        batch: DeviceBatch,
        dropout_key: Key[Array, ""] | None = None,
    ) -> Array:
        """Return the model's scores of a batch; by default, the head's."""
        return head_scores(self.model, params, batch, dropout_key)

    def for_program(self) -> "FinetuningTask":
        """Return the task with only what its scores and outputs depend on.

        It is the key of a compiled program; by default, the model alone.
        """
        return dataclasses.replace(self, data=ExamplesConfig(), training=None)

    def shard_flops(self, batch: Batch) -> float:
        """Return the model FLOPs of a training step on this host's rows."""
        rows, length = batch["end"].size, batch["tokens"].shape[-1]
        return finetuning_flops(self.model, rows, length)

    def label_weights(self, batch: DeviceBatch) -> Float[Array, "..."]:
        """Return the weight of each label in the loss; default: 1 unless it is -1."""
        return (batch["label"] >= 0).astype(jnp.float32)

    def label_count(self, batch: DeviceBatch) -> Float[Array, ""]:
        """Return the divisor of the loss: the sum of `label_weights`."""
        return self.label_weights(batch).sum()

    def label_loss(self, scores: Float[Array, "B *T C"], batch: DeviceBatch) -> Sum:
        """Return the total loss of a batch from the head's scores, and its count.

        By default, it is the cross-entropy in nats.
        """
        labels = jnp.maximum(batch["label"], 0)
        return cross_entropy(scores, labels, self.label_weights(batch))

    def distillation_loss(
        self,
        scores: Float[Array, "B *T C"],
        teacher_scores: Float[Array, "B *T C"],
        batch: DeviceBatch,
        temperature: float,
    ) -> Sum:
        """Return the total divergence from a teacher's scores, and `label_count`."""
        values = self.divergence(scores, teacher_scores, temperature)
        return weighted_sum(values, self.label_weights(batch))

    @abc.abstractmethod
    def outputs(self, scores: Array) -> dict[str, jax.Array]:
        """Return what `predict` needs from the head's scores; arrays [B, …]."""

    @abc.abstractmethod
    def predict(self, outputs: SplitOutputs) -> list[Prediction]:
        """Return a prediction for each example of a split."""

    def scores_among(self, outputs: SplitOutputs) -> dict[str, float]:
        """Return the scores that compare the examples of a split with each other.

        They stand before `official_scores`, and a `loss` among them replaces the mean
        over the batches. By default, there are none.
        """
        return {}

    def rankings_among(self, outputs: SplitOutputs) -> list[Prediction]:
        """Return what an error report says of each example besides its prediction.

        For each text that others are ranked for: the `rank` of the right one, where it
        is found and its score (`right`, `right_score`), and those of what is ranked
        first (`first`, `first_score`). A place is an example and a text in it. By
        default, and for other examples, nothing.
        """
        return [{} for _ in outputs.split.examples]

    @abc.abstractmethod
    def official_scores(self, predictions: Predictions) -> dict[str, float]:
        """Return the official scores; the first one selects the best checkpoint."""

    @abc.abstractmethod
    def write(self, predictions: Predictions, directory: Path) -> list[str]:
        """Write the official prediction files into a directory; return their names."""

    @abc.abstractmethod
    def baseline(self, splits: Splits) -> tuple[str, float]:
        """Return the name and the first score of a rule that needs no model."""

    def rows_to_predict(self, source: str, **options: Any) -> Iterator[TableRow]:
        """Return the rows of a file to predict, by default those of `source_rows`."""
        return source_rows(source, self.text_column, self.data.delimiter, **options)

    @property
    def text_column(self) -> str:
        """The name of the column that a line of text is."""
        return self.data.text_columns[0] if self.data.text_columns else "text"

    @abc.abstractmethod
    def example_without_label(self, row: TableRow) -> Example:
        """Return the example in a row that a user wants a prediction for."""

    def has_label(self, example: Example) -> bool:
        """Return whether the right prediction is known; by default, by its `label`."""
        return example.label is not None

    def texts(self, example: Example) -> tuple[str, ...]:
        """Return the texts that the model reads; equal ones are the same example."""
        return example.texts

    def classes(self, example: Example) -> tuple[str, ...]:
        """Return the classes of which both splits should have an example."""
        return ()

    def group(self, example: Example) -> object:
        """Return a key: examples with equal keys are put into the same split.

        By default, it is the texts, or with `data.split` "rows" the example itself.
        """
        return id(example) if self.data.split == "rows" else self.texts(example)

    def cut_warnings(self, num_cut: int, num_examples: int) -> list[str]:
        """Return a line with the number of truncated examples, if there are any."""
        limit, positions = self.max_tokens, self.model.max_position_embeddings
        option = f"--data.{self.length_option.replace('_', '-')}"
        remedy = f"{option} raises it, up to {positions}"
        if limit == positions or limit < getattr(self.data, self.length_option):
            remedy = TAKES_NO_MORE
        return cut_lines(num_cut, num_examples, limit, remedy, self.noun)

    @property
    def max_tokens(self) -> int:
        """The most tokens that an example may have."""
        positions = self.model.max_position_embeddings
        return min(getattr(self.data, self.length_option) or positions, positions)

    def warnings(self, split: Split) -> list[str]:
        """Return a line for each kind of thing that tokenizing cut or left out."""
        cut = self.cut_warnings(num_cut(split.tokenized), len(split.examples))
        return cut + self.score_warnings(split)

    def score_warnings(self, split: Split) -> list[str]:
        """Return a line for each kind of thing that scores leave out; default: none."""
        return []

    # What follows is for the training loop, and reads `training`.

    @property
    def _training(self) -> Training:
        assert self.training is not None, "a task without examples cannot be trained"
        return self.training

    @functools.cached_property
    def batches(self) -> ExampleBatches:  # type: ignore[override]
        own = self._training
        return ExampleBatches(
            own.config,
            own.train.tokenized,
            own.validation.tokenized,
            row_length(own.config.data, self.model),
            own.host_index,
            own.host_count,
        )

    def evaluation_batches(self) -> Iterator[Batch]:
        return self.batches.validation()

    @property
    def scores_start(self) -> bool:
        return self._training.scores_start

    @property
    def objective(self) -> tuple[str, ...]:
        """`loss`; with a teacher, the losses that it is the sum of."""
        if self._training.teacher is None:
            return ("loss",)
        weight = self._training.config.distillation.label_weight
        return (*[_LABEL_LOSS] * bool(weight), DISTILLATION_LOSS)

    @property
    def weights(self) -> Mapping[str, float]:
        if self._training.teacher is None:
            return NO_WEIGHTS
        return {_LABEL_LOSS: self._training.config.distillation.label_weight}

    @property
    def fixed_params(self) -> Params:
        teacher = self._training.teacher
        return {} if teacher is None else {TEACHER: teacher.params}

    def init_params(self, key: Key[Array, ""]) -> Params:
        return init_params(self.model, key)

    def count(self, batch: DeviceBatch) -> Counts:
        return dict.fromkeys(self.objective, self.label_count(batch))

    def loss(self, params: Params, batch: DeviceBatch, key: Key[Array, ""]) -> Sums:
        return self._losses(self.scores(params, batch, key), params, batch)

    def _losses(self, scores: Array, params: Params, batch: DeviceBatch) -> Sums:
        own, teacher = self.label_loss(scores, batch), self._training.teacher
        if teacher is None:
            return {"loss": own}
        c = self._training.config.distillation
        teacher_scores = head_scores(teacher.config, params[TEACHER], batch)
        total, count = self.distillation_loss(
            scores, teacher_scores, batch, c.temperature
        )
        return {_LABEL_LOSS: own, DISTILLATION_LOSS: (c.scores_weight * total, count)}

    def evaluate(
        self, params: Params, batch: DeviceBatch
    ) -> tuple[Sums, dict[str, jax.Array]]:
        scores = self.scores(params, batch)
        outputs = self.outputs(scores) | {"row": batch["row"]}
        return self._losses(scores, params, batch), outputs

    def score(self, evaluation: Evaluation) -> dict[str, float]:
        training = self._training
        outputs = ((batch.pop("row"), batch) for batch in map(dict, evaluation.outputs))
        rows = by_row(outputs, len(training.validation.tokenized))
        split_outputs = SplitOutputs(training.validation, rows)
        examples = training.validation.examples
        predicted = Predictions(examples, self.predict(split_outputs))
        own = training.own_scores(predicted) if training.own_scores else {}
        official = self.scores_among(split_outputs) | self.official_scores(predicted)
        scores = own | official | own  # of two with one name, the user's
        # The parts of the loss stand last: the first score selects the best checkpoint.
        loss = {"loss": evaluation.means["loss"]}
        return loss | scores | evaluation.means | scores

    def selection_score(self, scores: dict[str, float]) -> float:
        return main_score(scores)

    def num_tokens(self, batch: Batch) -> int:
        return int(batch["end"].sum(dtype=np.int64))

    def flops(self, batch: Batch) -> float:
        flops, teacher = self.shard_flops(batch), self._training.teacher
        if teacher is not None:  # forward only: a third
            rows, length = batch["end"].size, batch["tokens"].shape[-1]
            flops += finetuning_flops(teacher.config, rows, length) / 3
        return self._training.host_count * flops
