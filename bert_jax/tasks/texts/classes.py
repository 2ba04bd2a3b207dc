"""The class of a text, or any number of classes."""

import collections
import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from bert_jax.data.pipeline import permute
from bert_jax.metrics.classification import classification_scores, multi_label_scores
from bert_jax.model.distillation import binary_divergence
from bert_jax.model.losses import Sum, weighted_sum
from bert_jax.tasks.class_names import amounts_warning
from bert_jax.tasks.predictions import Prediction
from bert_jax.tasks.task import DeviceBatch
from bert_jax.tasks.texts import class_report
from bert_jax.tasks.texts.examples import TextExample, classes_of
from bert_jax.tasks.texts.task import TextTask


@final
@dataclasses.dataclass(frozen=True)
class ClassTask(TextTask):
    """One class for each text or pair of texts."""

    name = "text-classification"
    class_weights: tuple[float, ...] = ()
    """The weight of each class in the loss; (): 1."""
    analyses = class_report.ONE_CLASS

    def label_warnings(self, examples: Sequence[TextExample]) -> list[str]:
        amounts = [] if self.data.glue else amounts_warning(self.model.labels)
        return super().label_warnings(examples) + amounts

    def _label_array(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Return the int32 [N] numbers of the classes."""
        index = {name: i for i, name in enumerate(self.model.labels)}
        return np.array([index[str(example.label)] for example in examples], np.int32)

    def label_weights(self, batch: DeviceBatch) -> Float[Array, "..."]:
        """Return 1 or the weight of the class where a label is known, else 0."""
        weights = super().label_weights(batch)
        if self.class_weights:
            by_class = jnp.asarray(self.class_weights, jnp.float32)
            weights *= by_class[jnp.maximum(batch["label"], 0)]
        return weights

    def outputs(self, scores: Array) -> dict[str, jax.Array]:
        """Return `values` [B, C]: probabilities."""
        return {"values": jax.nn.softmax(scores)}

    def _prediction(self, values: np.ndarray) -> Prediction:
        """Return `label` and `probabilities`."""
        labels = self.model.labels
        probabilities = dict(zip(labels, values.tolist(), strict=True))
        return {"label": labels[int(values.argmax())], "probabilities": probabilities}

    def _scores(
        self, examples: Sequence[TextExample], values: Sequence[Prediction]
    ) -> dict[str, float]:
        labels = self.model.labels
        index = {name: i for i, name in enumerate(labels)}
        predicted = np.array([index[value["label"]] for value in values])
        gold = self._label_array(examples)
        scores = classification_scores(gold, predicted, len(labels))
        if len(labels) == 2:
            # `f1` is that of the second class, which its own name says.
            first = classification_scores(1 - gold, 1 - predicted, 2)["f1"]
            own = zip(labels, (first, scores["f1"]), strict=True)
            scores |= {f"f1_{label}": f1 for label, f1 in own}
        return scores

    def _constant(self, examples: Sequence[TextExample]) -> tuple[str, float]:
        labels = [example.label for example in examples]
        common = collections.Counter(labels).most_common(1)[0][0]
        correct = [label == common for label in labels]
        return "accuracy of the commonest label", float(np.mean(correct))


@final
@dataclasses.dataclass(frozen=True)
class ClassesTask(TextTask):
    """Any number of classes for each text or pair of texts."""

    name = "text-classification"
    divergence = staticmethod(binary_divergence)
    problem_type = "multi_label_classification"
    analyses = class_report.SEVERAL_CLASSES

    def _label_array(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Return int32 [N, C]: 0 or 1."""
        return self._chosen(map(classes_of, examples)).astype(np.int32)

    def _chosen(self, names: Iterable[Collection[str]]) -> Bool[np.ndarray, "N C"]:
        """Return which classes are among the names of each example."""
        return np.array(
            [[label in own for label in self.model.labels] for own in names]
        )

    def label_loss(self, scores: Array, batch: DeviceBatch) -> Sum:
        """Return the binary cross-entropy of each class, in nats."""
        targets = jnp.maximum(batch["label"], 0).astype(jnp.float32)
        losses = optax.sigmoid_binary_cross_entropy(scores, targets)
        return weighted_sum(losses, self.label_weights(batch))

    def outputs(self, scores: Array) -> dict[str, jax.Array]:
        """Return `values` [B, C]: probabilities."""
        return {"values": jax.nn.sigmoid(scores)}

    def _prediction(self, values: np.ndarray) -> Prediction:
        """Return `labels` and `probabilities`."""
        probabilities = dict(zip(self.model.labels, values.tolist(), strict=True))
        chosen = [name for name, value in probabilities.items() if value > 0.5]
        return {"labels": chosen, "probabilities": probabilities}

    def _scores(
        self, examples: Sequence[TextExample], values: Sequence[Prediction]
    ) -> dict[str, float]:
        return multi_label_scores(
            self._chosen(map(classes_of, examples)),
            self._chosen(value["labels"] for value in values),
        )

    def _constant(self, examples: Sequence[TextExample]) -> tuple[str, float]:
        gold = self._chosen(map(classes_of, examples))
        counts = np.sort(gold.sum(axis=0))[::-1]
        # Of k classes for each example, the k commonest are right most often.
        sizes = np.arange(1, len(counts) + 1) * len(gold) + counts.sum()
        best = float(np.max(2 * counts.cumsum() / sizes, initial=0.0))
        return "micro_f1 of the commonest labels", best


def balanced_weights(
    labels: Int[np.ndarray, " N"], num_classes: int
) -> tuple[float, ...]:
    """Return N / (C · the number of examples of the class), for each class.

    The mean weight of an example is 1 (King and Zeng 2001; "balanced" in
    scikit-learn). The weight of a class without an example is 0.
    """
    counts = np.bincount(labels, minlength=num_classes)
    weights = len(labels) / (num_classes * np.maximum(counts, 1))
    return tuple(np.where(counts > 0, weights, 0.0).tolist())


def balanced_rows(labels: Int[np.ndarray, " N"], seed: int) -> Int[np.ndarray, " M"]:
    """Return indices of examples, of which each class has as many as the largest.

    An example is repeated as often as the others of its class, or once more; the seed
    decides which.
    """
    rows = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    most = max(map(len, rows))
    parts = []
    for own in rows:
        order = permute(np.arange(len(own)), len(own), key=seed)
        parts.append(np.resize(own[order], most))
    return np.sort(np.concatenate(parts))
