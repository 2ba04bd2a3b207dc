"""The interface of one kind of fine-tuning, from its files to its scores."""

import abc
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.model import Head, Params
from bert_jax.data.examples import TokenizedExamples
from bert_jax.data.pipeline import Batch
from bert_jax.model.bert import compute
from bert_jax.model.contrastive import Texts
from bert_jax.model.distillation import score_divergence
from bert_jax.model.flops import finetuning_flops
from bert_jax.model.inputs import inputs_of_tokenized
from bert_jax.model.losses import Sum, cross_entropy, weighted_sum
from bert_jax.storage.files import JsonObject
from bert_jax.tables.rows import TableRow
from bert_jax.tasks.class_names import similar_label_warnings
from bert_jax.tasks.lengths import TAKES_NO_MORE, cut_lines
from bert_jax.tasks.task import DeviceBatch
from bert_jax.tokenization import Tokenizer

Example = Any
"""A line, question or sentence of a file; a dataclass of the task's own."""
RowOutputs = dict[str, np.ndarray]
"""What the model computed for one tokenized row."""
Prediction = JsonObject
"""What is predicted for one example: JSON values by the names that users see."""
PADDING_SCORE = -1e9
"""A finite score to which softmax gives probability 0."""


@dataclasses.dataclass(frozen=True)
class Split:
    """The examples of a file, and their tokenized rows."""

    examples: Sequence[Example]
    tokenized: TokenizedExamples


@dataclasses.dataclass(frozen=True)
class SplitOutputs:
    """A split, and what the model computed for each of its tokenized rows."""

    split: Split
    rows: Sequence[RowOutputs]


@dataclasses.dataclass(frozen=True)
class Splits:
    """The examples to train on, to validate on, and those of a test file, if any."""

    train: Sequence[Example]
    validation: Sequence[Example]
    test: Sequence[Example] = ()


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Examples, and a prediction for each."""

    examples: Sequence[Example]
    values: Sequence[Prediction]


def head_scores(
    model: BertConfig,
    params: Params,
    batch: DeviceBatch,
    dropout_key: Key[Array, ""] | None = None,
) -> Array:
    """Return the head's float32 scores of a batch that `TokenizedExamples.gather` made.

    Returns:
        [B, C] for texts, [B, T, C] for tokens, [B, C] for choices, of which those that
        a row does not have get a score with probability 0.
    """
    inputs = inputs_of_tokenized(batch)
    scores: Array = compute(
        model, params, "classifier_scores", inputs, dropout_key=dropout_key
    )
    if batch["tokens"].ndim == 2:
        return scores
    is_there = batch["second"] > 0  # as `MultipleChoiceTask.tokenize` says
    return jnp.where(is_there, scores[:, 0].reshape(is_there.shape), PADDING_SCORE)


@dataclasses.dataclass(frozen=True)
class FinetuningTask(abc.ABC):
    """From a file to its scores; pure functions except `read` and `write`.

    `read` → examples; `tokenize` → rows; the model's scores of rows; `outputs`, on the
    device; `predict` → predictions; `score` and `write`.
    """

    data: ExamplesConfig
    model: BertConfig = dataclasses.field(default_factory=BertConfig)
    """The model with the task's head and labels, once the labels are known."""

    head: ClassVar[Head]
    noun: ClassVar[str] = "texts"
    """What examples are called in messages."""
    length_option: ClassVar[str] = "max_length"
    """The field of `data` that limits the tokens of an example."""

    @abc.abstractmethod
    def read(self, name: str) -> list[Example]:
        """Read a file, or a split of `data.path`: "train", "validation" or "test".

        Examples have labels if the file has them.

        Raises:
            ValueError: names the file and the line.
        """

    @abc.abstractmethod
    def labels(self, examples: Sequence[Example]) -> tuple[str, ...]:
        """Return the classes of training examples in order; () if the head has none.

        Raises:
            ValueError: nothing can be learned from these examples.
        """

    @abc.abstractmethod
    def check(self, examples: Sequence[Example]) -> None:
        """Raise ValueError if the model does not have the label of an example."""

    def targets(self, examples: Sequence[Example]) -> tuple[float, float]:
        """Return mean and deviation of the numbers to learn; 0 and 1 leave them."""
        del examples
        return 0.0, 1.0

    def match_labels(self, examples: Sequence[Example]) -> Sequence[Example]:
        """Return the examples with the model's names of their labels.

        By default, they are the names in the file. Raise ValueError as `check`.
        """
        self.check(examples)
        return examples

    def label_warnings(self, examples: Sequence[Example]) -> list[str]:
        """Return a line for each kind of class name that may be a mistake.

        Args:
            examples: those that the classes were inferred from, with the file's names.
        """
        del examples
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
        """Return the model's scores of a batch; by default, those of the head."""
        return head_scores(self.model, params, batch, dropout_key)

    def for_program(self) -> "FinetuningTask":
        """Return the task with only what its scores and outputs depend on.

        It is the key of a compiled program; by default, the model alone.
        """
        return dataclasses.replace(self, data=ExamplesConfig())

    def flops(self, batch: Batch) -> float:
        """Return the model FLOPs of a training step on a batch."""
        rows, length = batch["end"].size, batch["tokens"].shape[-1]
        return finetuning_flops(self.model, rows, length)

    def count(self, batch: DeviceBatch) -> Float[Array, ""]:
        """Return the divisor of the loss; by default, the number of known labels."""
        return (batch["label"] >= 0).sum(dtype=jnp.float32)

    def loss(self, scores: Float[Array, "B *T C"], batch: DeviceBatch) -> Sum:
        """Return the total loss of a batch from the head's scores, and its count.

        By default, it is the cross-entropy in nats over the labels that are not -1.
        """
        labels = batch["label"]
        weights = (labels >= 0).astype(jnp.float32)
        return cross_entropy(scores, jnp.maximum(labels, 0), weights)

    def distillation_loss(
        self,
        scores: Float[Array, "B *T C"],
        teacher_scores: Float[Array, "B *T C"],
        batch: DeviceBatch,
        temperature: float,
    ) -> Sum:
        """Return the total divergence from a teacher's scores, and the count of `loss`.

        By default, it is that of the probabilities where a label is not -1.
        """
        weights = (batch["label"] >= 0).astype(jnp.float32)
        values = score_divergence(scores, teacher_scores, temperature)
        return weighted_sum(values, weights)

    @property
    def compares_rows(self) -> bool:
        """As that of `Task`; `scores` are then the vectors to compare."""
        return False

    def compare(
        self, own: Texts, everyone: Texts, first: Int[Array, ""] | int
    ) -> dict[str, Sum]:
        """Return the `loss` of some rows and other sums, as `Task.compare`."""
        raise NotImplementedError

    @abc.abstractmethod
    def outputs(self, scores: Array) -> dict[str, jax.Array]:
        """Return what `predict` needs from the head's scores; arrays [B, …]."""

    @abc.abstractmethod
    def predict(self, outputs: SplitOutputs) -> list[Prediction]:
        """Return a prediction for each example of a split."""

    def scores_among(self, outputs: SplitOutputs) -> dict[str, float]:
        """Return the scores that compare the examples of a split with each other.

        They stand before those of `score`, and a `loss` among them replaces the mean
        over the batches. By default, there are none.
        """
        del outputs
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
    def score(self, predictions: Predictions) -> dict[str, float]:
        """Return the official scores; the first one selects the best checkpoint."""

    @abc.abstractmethod
    def write(self, predictions: Predictions, directory: Path) -> list[str]:
        """Write the official prediction files into a directory; return their names."""

    @abc.abstractmethod
    def baseline(self, splits: Splits) -> tuple[str, float]:
        """Return the name and the first score of a rule that needs no model."""

    @abc.abstractmethod
    def example_without_label(self, row: TableRow) -> Example:
        """Return the example in a row that a user wants a prediction for."""

    def has_label(self, example: Example) -> bool:
        """Return whether the right prediction is known; by default, by its `label`."""
        return example.label is not None

    @abc.abstractmethod
    def texts(self, example: Example) -> tuple[str, ...]:
        """Return the texts that the model reads; equal ones are the same example."""

    def classes(self, example: Example) -> tuple[str, ...]:
        """Return the classes of which both splits should have an example."""
        del example
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
        limit: int = getattr(self.data, self.length_option)
        return min(limit or positions, positions)

    @abc.abstractmethod
    def warnings(self, split: Split) -> list[str]:
        """Return a line for each kind of thing that tokenizing cut or left out."""

    def score_warnings(self, split: Split) -> list[str]:
        """Return a line for each kind of thing that scores leave out; default: none."""
        del split
        return []
