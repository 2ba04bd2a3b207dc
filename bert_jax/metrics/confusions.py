"""Which class is predicted for which, and the counts of each class."""

import numpy as np
from jaxtyping import Bool, Int

from bert_jax.metrics.match_counts import MatchCounts


def confusion_counts(
    labels: Int[np.ndarray, " N"], predictions: Int[np.ndarray, " N"], num_classes: int
) -> Int[np.ndarray, "C C"]:
    """Return how often an example of class i (row) is predicted as class j (column)."""
    from sklearn.metrics import confusion_matrix

    return confusion_matrix(labels, predictions, labels=np.arange(num_classes))


def counts_of_classes(confusions: Int[np.ndarray, "C C"]) -> list[MatchCounts]:
    """Return the counts of each class, where each example has one."""
    return _counts(confusions.sum(1), confusions.sum(0), confusions.diagonal())


def counts_of_labels(
    labels: Bool[np.ndarray, "N C"], predictions: Bool[np.ndarray, "N C"]
) -> list[MatchCounts]:
    """Return the counts of each class, where an example has any number of them."""
    correct = (labels & predictions).sum(axis=0)
    return _counts(labels.sum(axis=0), predictions.sum(axis=0), correct)


def _counts(
    gold: Int[np.ndarray, " C"],
    predicted: Int[np.ndarray, " C"],
    correct: Int[np.ndarray, " C"],
) -> list[MatchCounts]:
    columns = zip(gold.tolist(), predicted.tolist(), correct.tolist(), strict=True)
    return [MatchCounts(gold=g, predicted=p, correct=c) for g, p, c in columns]
