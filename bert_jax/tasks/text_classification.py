"""Classes or numbers for texts and pairs of texts (Devlin et al. 2018, §4.1).

All tasks of GLUE, and a user's own table of texts.
"""

import collections
import dataclasses
import functools
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, final

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from bert_jax.config.checks import SMALLEST_FLOAT32
from bert_jax.config.model import Head
from bert_jax.data.examples import (
    TokenizedExamples,
    from_rows,
    join_pairs,
    num_cut,
)
from bert_jax.metrics.classification import (
    classification_scores,
    multi_label_scores,
    regression_scores,
)
from bert_jax.model.distillation import binary_divergence, score_divergence
from bert_jax.model.losses import Sum, cross_entropy, weighted_sum
from bert_jax.tables.damage import parse_rows
from bert_jax.tables.read import table_rows
from bert_jax.tables.rows import TableRow
from bert_jax.tasks.class_names import (
    class_finder,
    joined_warnings,
    list_warnings,
    unknown_class_message,
)
from bert_jax.tasks.finetuning_task import (
    FinetuningTask,
    Prediction,
    Predictions,
    Split,
    SplitOutputs,
    Splits,
)
from bert_jax.tasks.glue import GLUE, read_glue, submission_name
from bert_jax.tasks.prediction_tables import (
    readable_rows,
    submission_rows,
    write_lines,
)
from bert_jax.tasks.task import DeviceBatch
from bert_jax.tasks.texts import (
    TextExample,
    classes,
    classes_of,
    example_without_label,
    labelled_example,
    name_counts,
    regression_output,
    require_labels,
)
from bert_jax.tokenization import Tokenizer


@final
@dataclasses.dataclass(frozen=True)
class TextTask(FinetuningTask):
    """One class, several classes, or a number for each text or pair of texts.

    `model.problem_type` determines which; `is_regression`, how files are read.
    """

    is_regression: bool = False
    """Whether the labels of files are numbers."""
    class_weights: tuple[float, ...] = ()
    """The weight of each class in the loss; (): 1."""

    head: ClassVar[Head] = "sequence_classification"

    def read(self, name: str) -> list[TextExample]:
        config = self.data
        if config.glue:
            task = GLUE[config.glue]
            config = dataclasses.replace(
                config, text_columns=task.texts, label_column=task.label
            )
            rows = read_glue(config.glue, config.path, name)
            return [
                labelled_example(row, config, self.is_regression, group)
                for row, group in rows
            ]
        if config.path:
            raise ValueError(
                f"data.path={config.path} but no task of GLUE is named; name one, as "
                "in `bert-jax finetune mrpc`, or give the files by --data.train and "
                "--data.validation."
            )
        return parse_rows(
            name,
            table_rows(name, config.delimiter),
            lambda row: labelled_example(row, config, self.is_regression, ""),
            config.skip_damaged,
        )

    def labels(self, examples: Sequence[TextExample]) -> tuple[str, ...]:
        require_labels(examples, self.data)
        find = regression_output if self.is_regression else classes
        return find(examples, self.data)

    def targets(self, examples: Sequence[TextExample]) -> tuple[float, float]:
        """Return mean and deviation of the numbers; those of GLUE stay (§4.1)."""
        if not self.is_regression or self.data.glue:
            return super().targets(examples)
        values = np.array([example.label for example in examples], np.float64)
        mean, deviation = float(values.mean()), float(values.std())
        # What is 0 in float32 cannot be in a configuration.
        small = SMALLEST_FLOAT32
        return (
            mean if abs(mean) >= small else 0.0,
            max(deviation, small) if np.ptp(values) else 1.0,
        )

    def label_warnings(self, examples: Sequence[TextExample]) -> list[str]:
        if self._is_number or self.data.glue:
            return []
        data, labels = self.data, self.model.labels
        counts = name_counts(examples)
        joined = [] if data.labels else joined_warnings(counts, data.merge_labels)
        marks = list_warnings(labels, data.multi_label, data.label_separator)
        return joined + super().label_warnings(examples) + marks

    def check(self, examples: Sequence[TextExample]) -> None:
        self.match_labels(examples)

    def match_labels(self, examples: Sequence[TextExample]) -> list[TextExample]:
        labels = self.model.labels
        find = functools.cache(class_finder(labels, self.data.merge_labels))
        matched = []
        for example in examples:
            names = classes_of(example)
            known = tuple(name for name in map(find, names) if name is not None)
            if len(known) < len(names):
                unknown = next(name for name in names if find(name) is None)
                raise ValueError(unknown_class_message(example.where, unknown, labels))
            if known != names:
                label = known[0] if isinstance(example.label, str) else known
                example = dataclasses.replace(example, label=label)
            matched.append(example)
        return matched

    def tokenize(
        self, examples: Sequence[TextExample], tokenizer: Tokenizer
    ) -> TokenizedExamples:
        """Return one row per example, cut to `max_length`, the longer text first.

        Raises:
            ValueError: some examples are pairs, and some are not.
        """
        first = examples[0]
        for example in examples:
            if len(example.texts) != len(first.texts):
                raise ValueError(
                    f"{example.where} has {len(example.texts)} texts and {first.where} "
                    f"has {len(first.texts)}; all rows must have the same number."
                )
        max_length = self.max_tokens
        columns = zip(*(example.texts for example in examples), strict=True)
        pairs = list(zip(*map(tokenizer.encode_batch, columns), strict=True))
        rows, cut = join_pairs(tokenizer, pairs, max_length)
        by_example = {"cut": cut}
        if all(example.label is not None for example in examples):
            by_example["label"] = self._label_array(examples)
        return from_rows(rows, np.arange(len(rows), dtype=np.int32), by_example)

    def warnings(self, split: Split) -> list[str]:
        return self.cut_warnings(num_cut(split.tokenized), len(split.examples))

    def _label_array(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Return float32 [N] numbers, int32 [N] classes, or int32 [N, C] 0 or 1."""
        if self._is_number:
            numbers = np.array([example.label for example in examples], np.float64)
            mean, deviation = self._targets
            return ((numbers - mean) / deviation).astype(np.float32)
        if self.model.problem_type == "multi_label_classification":
            return self._chosen(map(classes_of, examples)).astype(np.int32)
        index = {name: i for i, name in enumerate(self.model.labels)}
        return np.array([index[str(example.label)] for example in examples], np.int32)

    def _chosen(self, names: Iterable[Collection[str]]) -> Bool[np.ndarray, "N C"]:
        """Return which classes are among the names of each example."""
        return np.array(
            [[label in own for label in self.model.labels] for own in names]
        )

    def _weights(self, batch: DeviceBatch) -> Float[Array, "..."]:
        """Return 1 or the weight of the class where a label is known, else 0."""
        labels = batch["label"]
        known = ~jnp.isnan(labels) if self._is_number else labels >= 0
        weights = known.astype(jnp.float32)
        if self.class_weights:
            by_class = jnp.asarray(self.class_weights, jnp.float32)
            weights *= by_class[jnp.maximum(labels, 0)]
        return weights

    @property
    def _is_number(self) -> bool:
        return self.model.problem_type == "regression"

    @property
    def _targets(self) -> tuple[float, float]:
        return self.model.target_mean, self.model.target_deviation

    def count(self, batch: DeviceBatch) -> Float[Array, ""]:
        return self._weights(batch).sum()

    def loss(self, scores: Array, batch: DeviceBatch) -> Sum:
        """Return the cross-entropy, or the squared error in deviations of the targets.

        If a row may have several classes, it is the binary one of each class.
        """
        labels, weights = batch["label"], self._weights(batch)
        if self.model.problem_type == "single_label_classification":
            return cross_entropy(scores, jnp.maximum(labels, 0), weights)
        if self._is_number:
            error = scores[:, 0] - jnp.where(weights > 0, labels, 0.0)
            return weighted_sum(error**2, weights)
        targets = jnp.maximum(labels, 0).astype(jnp.float32)
        losses = optax.sigmoid_binary_cross_entropy(scores, targets)
        return weighted_sum(losses, weights)

    def distillation_loss(
        self,
        scores: Array,
        teacher_scores: Array,
        batch: DeviceBatch,
        temperature: float,
    ) -> Sum:
        """Return the divergence, or the squared difference from the teacher's number.

        If a row may have several classes, it is the divergence of each class. Weights
        are those of `loss`.
        """
        weights = self._weights(batch)
        if self._is_number:
            return weighted_sum((scores - teacher_scores)[:, 0] ** 2, weights)
        if self.model.problem_type == "multi_label_classification":
            return weighted_sum(
                binary_divergence(scores, teacher_scores, temperature), weights
            )
        return weighted_sum(
            score_divergence(scores, teacher_scores, temperature), weights
        )

    def outputs(self, scores: Array) -> dict[str, jax.Array]:
        """Return `values` [B, C]: probabilities, or the number."""
        if self._is_number:
            return {"values": scores}
        if self.model.problem_type == "multi_label_classification":
            return {"values": jax.nn.sigmoid(scores)}
        return {"values": jax.nn.softmax(scores)}

    def predict(self, outputs: SplitOutputs) -> list[Prediction]:
        """Return `label` and `probabilities`; `labels` and the same; or `value`."""
        return [
            self._prediction(row["values"].astype(np.float64)) for row in outputs.rows
        ]

    def _prediction(self, values: np.ndarray) -> Prediction:
        if self._is_number:
            mean, deviation = self._targets
            return {"value": mean + deviation * float(values[0])}
        labels = self.model.labels
        probabilities = dict(zip(labels, values.tolist(), strict=True))
        if self.model.problem_type == "multi_label_classification":
            chosen = [name for name, value in probabilities.items() if value > 0.5]
            return {"labels": chosen, "probabilities": probabilities}
        return {"label": labels[int(values.argmax())], "probabilities": probabilities}

    def score(self, predictions: Predictions) -> dict[str, float]:
        """Return the scores of all examples, and those of a named group by its name."""
        pairs = list(zip(predictions.examples, predictions.values, strict=True))
        scores: dict[str, float] = {}
        for group in dict.fromkeys(example.group for example, _ in pairs):
            chosen = [pair for pair in pairs if pair[0].group == group]
            examples, values = zip(*chosen, strict=True)
            own_scores = self._scores(examples, values)
            glue = self.data.glue
            names = GLUE[glue].scores if glue else tuple(own_scores)
            suffix = f"_{group}" if group else ""
            scores |= {f"{name}{suffix}": own_scores[name] for name in names}
        return scores

    def _scores(
        self, examples: Sequence[TextExample], values: Sequence[Prediction]
    ) -> dict[str, float]:
        if self._is_number:
            predicted = np.array([value["value"] for value in values])
            gold = np.array([example.label for example in examples])
            scores_of_numbers = regression_scores(gold, predicted)
            if self._targets == (0.0, 1.0):  # also runs that began with this order
                return scores_of_numbers
            # 1 minus the error divided by that of the mean: at most 0 for a constant.
            error, variance = scores_of_numbers["mean_squared_error"], np.var(gold)
            r2 = 1 - error / float(variance) if variance else 0.0
            return {"r2": r2} | scores_of_numbers
        if self.model.problem_type == "multi_label_classification":
            return multi_label_scores(
                self._chosen(map(classes_of, examples)),
                self._chosen(value["labels"] for value in values),
            )
        labels = self.model.labels
        predicted = np.array([labels.index(value["label"]) for value in values])
        gold = self._label_array(examples)
        scores = classification_scores(gold, predicted, len(labels))
        if len(labels) == 2:
            # `f1` is that of the second class, which its own name says.
            first = classification_scores(1 - gold, 1 - predicted, 2)["f1"]
            own = zip(labels, (first, scores["f1"]), strict=True)
            scores |= {f"f1_{label}": f1 for label, f1 in own}
        return scores

    def write(self, predictions: Predictions, directory: Path) -> list[str]:
        """Write tables of index and prediction, as GLUE's server accepts them.

        For other texts, predictions.tsv has probability, label and text, too.
        """
        examples, values = predictions.examples, predictions.values
        glue, separator = self.data.glue, self.data.label_separator
        if not glue:
            lines = readable_rows(examples, values, separator)
            write_lines(lines, directory / "predictions.tsv")
            return ["predictions.tsv"]
        tables = collections.defaultdict[str, list[Prediction]](list)
        for example, value in zip(examples, values, strict=True):
            tables[submission_name(glue, example.group)].append(value)
        for name, own in tables.items():
            write_lines(submission_rows(own, separator), directory / name)
        return list(tables)

    def baseline(self, splits: Splits) -> tuple[str, float]:
        """Return a score of the most frequent label, or the error of the mean.

        Both are those of the examples to score: no constant does better, and it is the
        same number whether or not the examples to learn from are known.
        """
        validation = [example.label for example in splits.validation]
        glue = GLUE[self.data.glue].scores if self.data.glue else ("accuracy",)
        if glue[0] in ("mcc", "pearson"):  # 0 for any constant
            return f"{glue[0]} of the commonest label", 0.0
        if self.is_regression:
            constant = np.full(len(validation), np.mean(validation))
            scores = regression_scores(np.array(validation), constant)
            return "mean_squared_error of the mean", scores["mean_squared_error"]
        most_frequent = collections.Counter(validation).most_common(1)[0][0]
        if self.model.problem_type == "multi_label_classification":
            gold = self._chosen(map(classes_of, splits.validation))
            chosen = self._chosen([most_frequent] * len(gold))
            scores = multi_label_scores(gold, chosen)
            return "micro_f1 of the commonest labels", scores["micro_f1"]
        correct = [label == most_frequent for label in validation]
        return "accuracy of the commonest label", float(np.mean(correct))

    def texts(self, example: TextExample) -> tuple[str, ...]:
        return example.texts

    def classes(self, example: TextExample) -> tuple[str, ...]:
        return classes_of(example)

    def example_without_label(self, row: TableRow) -> TextExample:
        return example_without_label(row, self.data)
