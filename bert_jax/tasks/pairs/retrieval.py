"""How well vectors find each second text of a split among all of its texts."""

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from bert_jax.metrics.retrieval import CUTOFFS, random_ndcg, retrieval_scores
from bert_jax.storage.files import JsonObject

_BLOCK = 1 << 24
"""Similarities that are in memory at once: 64 MiB."""


def _searches(
    vectors: Float[np.ndarray, "N C D"], ids: Int[np.ndarray, "N C"], block: int
) -> tuple[
    Int[np.ndarray, " Q"],
    Int[np.ndarray, " M"],
    Iterator[tuple[int, Float[np.ndarray, "_ M"], Int[np.ndarray, "_ 2"]]],
]:
    """Return different first texts, different texts to search, and their cosines.

    The first example of each query; where each document stands first, among the second
    texts and hard negatives; and for some queries at a time, the first one's number,
    their cosines, and each pair of a query, from the first one, and its document. The
    cosine of a query with itself is minus infinity, unless it belongs to itself.
    """
    queries, rows = np.unique(ids[:, 0], return_index=True)
    documents, places = np.unique(ids[:, 1:], return_index=True)
    first, others = vectors[rows, 0], vectors[:, 1:].reshape(-1, vectors.shape[-1])
    others = others[places]
    columns = np.searchsorted(queries, ids[:, 0]), np.searchsorted(documents, ids[:, 1])
    pairs = np.unique(np.stack(columns, axis=1), axis=0)
    own = not_found_for_themselves(ids)
    itself = np.stack(
        [np.searchsorted(texts, own) for texts in (queries, documents)], 1
    )

    def blocks() -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        size = max(1, block // len(others))
        for start in range(0, len(first), size):
            cosines = first[start : start + size] @ others.T
            bounds = [start, start + len(cosines)]
            low, high = np.searchsorted(itself[:, 0], bounds)
            query, document = (itself[low:high] - (start, 0)).T
            cosines[query, document] = -np.inf
            low, high = np.searchsorted(pairs[:, 0], bounds)
            yield start, cosines, pairs[low:high] - (start, 0)

    return rows, places, blocks()


def not_found_for_themselves(ids: Int[np.ndarray, "N C"]) -> Int[np.ndarray, " S"]:
    """Return the first texts that are searched, too, and do not belong to themselves.

    Such a text is the nearest one to itself; it is neither right nor wrong.
    """
    belong = ids[ids[:, 0] == ids[:, 1], 0]
    return np.setdiff1d(np.intersect1d(ids[:, 0], ids[:, 1:]), belong)


def retrieval_among(
    vectors: Float[np.ndarray, "N C D"],
    ids: Int[np.ndarray, "N C"],
    temperature: float,
    block: int = _BLOCK,
) -> dict[str, float]:
    """Return the scores of a search, and the InfoNCE `loss` in nats among all texts.

    Each different first text is a query; what it is to find are the second texts that
    are paired with it, among all different second texts and hard negatives but itself.
    The loss of a pair is over its second text and those that are not paired with its
    first one.

    Args:
        vectors: those whose dot product is the similarity of two texts.
        ids: the number of each text; equal texts have equal numbers.
        block: similarities that are in memory at once.
    """
    queries, documents, blocks = _searches(vectors, ids, block)
    depth, num_pairs = min(max(CUTOFFS), len(documents)), 0
    totals: dict[str, float] = {}
    for _, cosines, right in blocks:
        num_pairs += len(right)
        grades: dict[int, dict[int, int]] = {i: {} for i in range(len(cosines))}
        for query, document in right.tolist():
            grades[query][document] = 1
        ranked = dict(enumerate(_best(cosines, depth).tolist()))
        scores = retrieval_scores(ranked, grades)
        # Last: it uses the memory of the cosines.
        losses = _losses(cosines, right, temperature)
        sums = {name: value * len(cosines) for name, value in scores.items()}
        for name, value in (sums | {"loss": math.fsum(losses)}).items():
            totals[name] = totals.get(name, 0.0) + value
    return {
        name: total / (num_pairs if name == "loss" else len(queries))
        for name, total in totals.items()
    }


def ranks_among(
    vectors: Float[np.ndarray, "N C D"],
    ids: Int[np.ndarray, "N C"],
    block: int = _BLOCK,
) -> list[JsonObject]:
    """Return for the first example of each first text how its best partner is found.

    `FinetuningTask.rankings_among` describes the fields; a text that is not ranked has
    none. The arguments are the same as of `retrieval_among`.
    """
    rows, places, blocks = _searches(vectors, ids, block)
    num_texts = ids.shape[1] - 1
    rankings: list[JsonObject] = [{} for _ in ids]
    examples = {
        tuple(pair): i for i, pair in reversed([*enumerate(ids[:, :2].tolist())])
    }
    for start, cosines, right in blocks:
        top = cosines.argmax(axis=1)
        for query, document in right.tolist():
            row, own = cosines[query], cosines[query, document]
            # Of equal ones, the lower column stands first.
            rank = 1 + int((row > own).sum() + (row[:document] == own).sum())
            example = int(rows[start + query])
            if rank >= rankings[example].get("rank", len(row) + 1):
                continue
            place, text = divmod(int(places[document]), num_texts)
            pair = int(ids[example, 0]), int(ids[place, 1 + text])
            first, column = divmod(int(places[top[query]]), num_texts)
            rankings[example] = {
                "rank": rank,
                "right": (examples[pair], 1),
                "right_score": float(own),
                "first": (first, 1 + column),
                "first_score": float(row[top[query]]),
            }
    return rankings


def random_retrieval(ids: Int[np.ndarray, "N C"]) -> float:
    """Return the expected nDCG@10 of documents in a random order."""
    pairs = np.unique(ids[:, :2], axis=0)
    queries, num_relevant = np.unique(pairs[:, 0], return_counts=True)
    without = np.isin(queries, not_found_for_themselves(ids))
    sizes = np.stack([num_relevant, len(np.unique(ids[:, 1:])) - without])
    kinds, counts = np.unique(sizes, axis=1, return_counts=True)
    scores = [random_ndcg([relevant], number) for relevant, number in kinds.T.tolist()]
    return float(np.average(scores, weights=counts))


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
        return np.logaddexp(log_wrong[rows], own) - own
