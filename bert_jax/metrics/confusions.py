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
    columns = confusions.sum(1), confusions.sum(0), confusions.diagonal()
    return [MatchCounts(g, p, c) for g, p, c in np.stack(columns, axis=1).tolist()]


def counts_of_labels(
    labels: Bool[np.ndarray, "N C"], predictions: Bool[np.ndarray, "N C"]
) -> list[MatchCounts]:
    """Return the counts of each class, where an example has any number of them."""
    columns = labels.sum(0), predictions.sum(0), (labels & predictions).sum(0)
    return [MatchCounts(g, p, c) for g, p, c in np.stack(columns, axis=1).tolist()]
