"""Scores of ranked lists: by hand, and beside ranx (marker parity)."""

import math

import numpy as np
import pytest

from bert_jax.metrics.retrieval import random_ndcg, retrieval_scores

RANKINGS = {"a": ["x", "y", "z"], "b": ["y", "x"], "c": ["z"], "d": []}
RELEVANCE = {
    "a": {"y": 2, "z": 1, "w": 1},
    "b": {"y": 1, "x": 0},
    "c": {"x": 1},
    "d": {"x": 1},
}


def test_the_scores_by_hand():
    scores = retrieval_scores(RANKINGS, RELEVANCE)
    log = math.log2
    ideal = 2 + 1 / log(3) + 1 / log(4)
    ndcg = (2 / log(3) + 1 / log(4)) / ideal
    assert scores["ndcg@10"] == pytest.approx((ndcg + 1) / 4, abs=1e-12)
    assert scores["mrr@10"] == pytest.approx((1 / 2 + 1) / 4, abs=1e-12)
    precision = (1 / 2 + 2 / 3) / 3
    assert scores["map"] == pytest.approx((precision + 1) / 4, abs=1e-12)
    assert scores["recall@1"] == pytest.approx((0 + 1) / 4, abs=1e-12)
    assert scores["recall@10"] == pytest.approx((2 / 3 + 1) / 4, abs=1e-12)


def test_ranks_past_the_tenth():
    ranking = [f"d{i}" for i in range(120)]
    scores = retrieval_scores({"q": ranking}, {"q": {"d10": 1, "d99": 1, "d110": 1}})
    assert scores["ndcg@10"] == scores["mrr@10"] == scores["recall@10"] == 0
    assert scores["recall@100"] == pytest.approx(2 / 3)
    assert scores["map"] == pytest.approx((1 / 11 + 2 / 100 + 3 / 111) / 3)


def test_queries_without_a_relevant_document_score_nothing():
    scores = retrieval_scores({"q": ["a"]}, {"q": {"a": 0}})
    assert set(scores.values()) == {0.0}
    with pytest.raises(ValueError, match="holds no query"):
        retrieval_scores({"q": ["a"]}, {})


def test_the_expected_score_of_a_random_order():
    generator = np.random.default_rng(0)
    documents = list(range(12))
    runs = []
    for _ in range(3000):
        order = generator.permutation(documents).tolist()
        judged = {"a": {0: 1}, "b": {0: 1, 1: 1, 2: 1}}
        runs.append(retrieval_scores({"a": order, "b": order}, judged)["ndcg@10"])
    assert random_ndcg([1, 3], 12) == pytest.approx(np.mean(runs), abs=0.02)


def drawn(num_queries=40, num_documents=300):
    generator = np.random.default_rng(1)
    judged, scored = {}, {}
    for query in range(num_queries):
        chosen = generator.choice(num_documents, 30, replace=False)
        grades = generator.integers(0, 4, 30)
        judged[f"q{query}"] = {
            f"d{d}": int(g) for d, g in zip(chosen, grades, strict=True)
        }
        size = int(generator.integers(1, 200))
        found = generator.choice(num_documents, size, replace=False)
        values = generator.permutation(size).astype(float)
        scored[f"q{query}"] = {
            f"d{d}": float(v) for d, v in zip(found, values, strict=True)
        }
    return judged, scored


@pytest.mark.parity
@pytest.mark.filterwarnings("ignore")  # of numba
def test_the_scores_are_those_of_ranx():
    ranx = pytest.importorskip("ranx")
    judged, scored = drawn()
    names = ["ndcg@10", "mrr@10", "map", "recall@1", "recall@10", "recall@100"]
    theirs = ranx.evaluate(ranx.Qrels(judged), ranx.Run(scored), names)
    rankings = {
        query: sorted(found, key=found.__getitem__, reverse=True)
        for query, found in scored.items()
    }
    ours = retrieval_scores(rankings, judged)
    assert ours.keys() == set(names)
    for name in names:
        assert 0 < ours[name] < 1
        assert ours[name] == pytest.approx(theirs[name], abs=1e-9)
