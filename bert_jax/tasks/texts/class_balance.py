"""Classes of different frequency: weights in the loss, or repeated examples."""

import numpy as np
from jaxtyping import Int

from bert_jax.data.pipeline import permute


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
