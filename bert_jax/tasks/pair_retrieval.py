"""How well vectors find each second text of a split among all of its texts."""

import math

import numpy as np
from jaxtyping import Float, Int

from bert_jax.metrics.retrieval import CUTOFFS, random_ndcg, retrieval_scores

_BLOCK = 1 << 24
"""Similarities that are in memory at once: 64 MiB."""


def retrieval_among(
    vectors: Float[np.ndarray, "N C D"],
    ids: Int[np.ndarray, "N C"],
    temperature: float,
    block: int = _BLOCK,
) -> dict[str, float]:
    """Return the scores of a search, and the InfoNCE `loss` in nats among all texts.

    Each different first text is a query; what it is to find are the second texts that
    are paired with it, among all different second texts and hard negatives. The loss of
    a pair is over its second text and those that are not paired with its first one.

    Args:
        vectors: of length 1.
        ids: the number of each text; equal texts have equal numbers.
        block: similarities that are in memory at once.
    """
    queries, rows = np.unique(ids[:, 0], return_index=True)
    documents, places = np.unique(ids[:, 1:], return_index=True)
    first = vectors[rows, 0]
    others = vectors[:, 1:].reshape(-1, vectors.shape[-1])[places]
    # [P, 2]: the query and the document of each different pair, in order.
    columns = np.searchsorted(queries, ids[:, 0]), np.searchsorted(documents, ids[:, 1])
    pairs = np.unique(np.stack(columns, axis=1), axis=0)
    depth = min(max(CUTOFFS), len(documents))
    size = max(1, block // len(documents))
    totals: dict[str, float] = {}
    for start in range(0, len(queries), size):
        cosines = first[start : start + size] @ others.T
        low, high = np.searchsorted(pairs[:, 0], [start, start + len(cosines)])
        right = pairs[low:high] - (start, 0)
        scores = _scores(_best(cosines, depth), right)
        # Last: it uses the memory of the cosines.
        losses = _losses(cosines, right, temperature)
        sums = {name: value * len(cosines) for name, value in scores.items()}
        for name, value in (sums | {"loss": math.fsum(losses)}).items():
            totals[name] = totals.get(name, 0.0) + value
    return {
        name: total / (len(pairs) if name == "loss" else len(queries))
        for name, total in totals.items()
    }


def random_retrieval(ids: Int[np.ndarray, "N C"]) -> float:
    """Return the expected nDCG@10 of documents in a random order."""
    pairs = np.unique(ids[:, :2], axis=0)
    num_relevant = np.unique(pairs[:, 0], return_counts=True)[1]
    return random_ndcg(num_relevant.tolist(), len(np.unique(ids[:, 1:])))


def _best(
    cosines: Float[np.ndarray, "Q M"], depth: int
) -> Int[np.ndarray, "Q {depth}"]:
    """Return the columns of each row's highest; of equal ones the lower one first."""
    # The vectors of a run that diverges are NaN, which is no order.
    if np.isnan(cosines).any():
        cosines = np.where(np.isnan(cosines), -np.inf, cosines)
    num_queries, last = len(cosines), cosines.shape[1] - depth
    thresholds = np.partition(cosines, last, axis=1)[:, last]
    # Of equal ones at the threshold there may be more than `depth`.
    rows, columns = np.nonzero(cosines >= thresholds[:, None])
    order = np.lexsort((columns, -cosines[rows, columns], rows))
    starts = np.searchsorted(rows, np.arange(num_queries))
    return columns[order][starts[:, None] + np.arange(depth)]


def _scores(
    ranked: Int[np.ndarray, "Q K"], right: Int[np.ndarray, "P 2"]
) -> dict[str, float]:
    """Return the scores of some queries, of which `right` has the documents."""
    grades: dict[int, dict[int, int]] = {i: {} for i in range(len(ranked))}
    for query, document in right.tolist():
        grades[query][document] = 1
    return retrieval_scores(dict(enumerate(ranked.tolist())), grades)


def _losses(
    cosines: Float[np.ndarray, "Q M"], right: Int[np.ndarray, "P 2"], temperature: float
) -> Float[np.ndarray, " P"]:
    """Return -log softmax of each right document among itself and the wrong ones.

    The cosines are overwritten.
    """
    rows, columns = right.T
    own = cosines[rows, columns] / temperature
    cosines[rows, columns] = -np.inf
    # The highest is subtracted, so that no exponential overflows.
    highest = cosines.max(axis=1, keepdims=True)
    highest[highest == -np.inf] = 0.0  # there is no wrong document
    cosines -= highest
    cosines /= temperature
    sums = np.exp(cosines, out=cosines).sum(axis=1, dtype=np.float64)
    # The logarithm of 0 is -inf; NaN stays NaN.
    with np.errstate(divide="ignore", invalid="ignore"):
        log_wrong = highest[:, 0] / temperature + np.log(sums)
        losses: Float[np.ndarray, " P"] = np.logaddexp(log_wrong[rows], own) - own
    return losses
