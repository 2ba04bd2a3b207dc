"""Scores of ranked lists, as trec_eval defines them, in float64.

Scores are means over the queries, and fractions, not per cent.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

QueryT = TypeVar("QueryT", bound=Hashable)
DocumentT = TypeVar("DocumentT", bound=Hashable)

CUTOFFS = (1, 10, 100)
"""Of recall: how many of the relevant documents are among the first k."""
_DEPTH = 10
"""The ranks that nDCG@10 and MRR@10 look at."""


def retrieval_scores(
    rankings: Mapping[QueryT, Sequence[DocumentT]],
    relevance: Mapping[QueryT, Mapping[DocumentT, int]],
) -> dict[str, float]:
    """Return `ndcg@10`, `mrr@10`, `map`, and `recall@k` for each of `CUTOFFS`.

    nDCG has linear gains (Järvelin & Kekäläinen 2002) and discounts by log₂(rank + 1).
    MAP is over the whole list. A query whose documents are all irrelevant scores 0.

    Args:
        rankings: for each query different documents, the best first; a query that is
            missing has found nothing.
        relevance: for each query that counts, the grade of each judged document; a
            grade above 0 is relevant, and a document that is missing is not.

    Raises:
        ValueError: there is no query.
    """
    if not relevance:
        raise ValueError("relevance holds no query: no score is defined.")
    queries = []
    for query, grades in relevance.items():
        best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
        gains = [max(grades.get(one, 0), 0) for one in rankings.get(query, ())]
        ranks = [rank for rank, gain in enumerate(gains, 1) if gain]
        ideal, total = _discounted(best[:_DEPTH]), max(len(best), 1)
        precisions = (number / rank for number, rank in enumerate(ranks, 1))
        scores = {
            "ndcg@10": _discounted(gains[:_DEPTH]) / ideal if ideal else 0.0,
            "mrr@10": 1 / ranks[0] if ranks and ranks[0] <= _DEPTH else 0.0,
            "map": math.fsum(precisions) / total,
        }
        recalls = {f"recall@{k}": sum(r <= k for r in ranks) / total for k in CUTOFFS}
        queries.append(scores | recalls)
    return {
        name: math.fsum(scores[name] for scores in queries) / len(queries)
        for name in queries[0]
    }


def random_ndcg(num_relevant: Iterable[int], num_documents: int) -> float:
    """Return the expected nDCG@10 of a random order.

    Args:
        num_relevant: for each query, its number of relevant documents, all of one
            grade, at least 1.
    """
    expected = _discounted([1] * min(_DEPTH, num_documents)) / num_documents
    values = [
        number * expected / _discounted([1] * min(number, _DEPTH))
        for number in num_relevant
    ]
    return math.fsum(values) / len(values)


def _discounted(gains: Sequence[int]) -> float:
    """Return Σ gain / log₂(rank + 1)."""
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))
