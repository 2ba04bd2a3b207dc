"""How well vectors find each second text of a split among all of its texts."""

import numpy as np
from jaxtyping import Float, Int

from bert_jax.metrics.retrieval import CUTOFFS, random_ndcg, retrieval_scores

_QUERIES = 256
"""First texts that are compared with all others at once."""


def retrieval_among(
    vectors: Float[np.ndarray, "N C D"], ids: Int[np.ndarray, "N C"], temperature: float
) -> dict[str, float]:
    """Return the scores of a search, and the InfoNCE `loss` in nats among all texts.

    Each different first text is a query; what it is to find are the second texts that
    are paired with it, among all different second texts and hard negatives.

    Args:
        vectors: of length 1.
        ids: the number of each text; equal texts have equal numbers.
    """
    queries, rows = np.unique(ids[:, 0], return_index=True)
    documents, places = np.unique(ids[:, 1:], return_index=True)
    first = vectors[rows, 0]
    others = vectors[:, 1:].reshape(-1, vectors.shape[-1])[places]
    # relevant[i]: the columns of the documents that belong to query i.
    columns = np.searchsorted(documents, ids[:, 1])
    owners = np.searchsorted(queries, ids[:, 0])
    relevant: list[set[int]] = [set() for _ in queries]
    for query, column in zip(owners.tolist(), columns.tolist(), strict=True):
        relevant[query].add(column)
    depth = min(max(CUTOFFS), len(documents))
    rankings: dict[int, list[int]] = {}
    losses = []
    for start in range(0, len(queries), _QUERIES):
        cosines = first[start : start + _QUERIES] @ others.T
        for query, row in enumerate(cosines, start):
            rankings[query] = _best(row, depth)
            losses += _losses(row / temperature, sorted(relevant[query]))
    grades = {i: dict.fromkeys(own, 1) for i, own in enumerate(relevant)}
    return retrieval_scores(rankings, grades) | {"loss": float(np.mean(losses))}


def random_retrieval(ids: Int[np.ndarray, "N C"]) -> float:
    """Return the expected nDCG@10 of documents in a random order."""
    pairs = np.unique(ids[:, :2], axis=0)
    num_relevant = np.unique(pairs[:, 0], return_counts=True)[1]
    return random_ndcg(num_relevant.tolist(), len(np.unique(ids[:, 1:])))


def _best(scores: Float[np.ndarray, " M"], depth: int) -> list[int]:
    """Return the places of the highest scores; of equal ones the lower one first."""
    threshold = np.partition(scores, -depth)[-depth]
    candidates = np.flatnonzero(scores >= threshold)
    order = np.argsort(-scores[candidates], kind="stable")
    return candidates[order][:depth].tolist()


def _losses(scores: Float[np.ndarray, " M"], relevant: list[int]) -> list[float]:
    """Return -log softmax of each relevant one among itself and the irrelevant ones."""
    irrelevant = np.delete(scores, relevant)
    return [
        float(np.logaddexp.reduce(np.append(irrelevant, scores[i])) - scores[i])
        for i in relevant
    ]
