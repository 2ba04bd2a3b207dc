"""Similarities and exact search, beside NumPy over all vectors at once."""

import itertools
import time

import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.inference.search import Hits, nearest, similarities


@pytest.fixture(scope="module")
def bert(pretrained):
    return bert_jax.load(pretrained)


def drawn(rows, width=8, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, width), np.float32)


def cosines(first, second):
    first, second = np.float64(first), np.float64(second)
    norms = np.linalg.norm(first, axis=1)[:, None] * np.linalg.norm(second, axis=1)
    return first @ second.T / norms


@pytest.mark.parametrize(
    ("num_queries", "rows", "k", "block"),
    [(5, 100, 7, 64), (1030, 40, 50, 64), (3, 100, 40, 16), (3, 100, 100, 16)],
)
def test_the_nearest_are_those_of_all_similarities(num_queries, rows, k, block):
    """Blocks that the rows do not fill, two parts of queries, k beyond block or all."""
    queries, corpus = drawn(num_queries), drawn(rows, seed=1)
    hits = nearest(queries, corpus, k, block=block)
    expected = cosines(queries, corpus)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(hits.indices, order)
    scores = np.take_along_axis(expected, order, axis=1)
    np.testing.assert_allclose(hits.scores, scores, atol=1e-6)
    assert hits.scores.dtype == np.float32


def test_of_equal_vectors_the_first_come_first():
    corpus = np.repeat(drawn(2), 40, axis=0)
    hits = nearest(corpus[:1], corpus, 5, block=16)
    assert hits.indices.tolist() == [[0, 1, 2, 3, 4]]


def test_a_memory_map_is_searched(tmp_path):
    corpus = drawn(50)
    np.save(tmp_path / "corpus.npy", corpus)
    stored = np.load(tmp_path / "corpus.npy", mmap_mode="r")
    assert nearest(corpus[20:21], stored, 1).indices.tolist() == [[20]]


def test_nothing_is_near_to_nothing():
    assert nearest(drawn(0), drawn(5), 2).indices.shape == (0, 2)
    assert nearest(drawn(2), drawn(0), 2).indices.shape == (2, 0)
    assert nearest(np.zeros((1, 8), np.float32), drawn(3), 1).scores.tolist() == [[0]]


@pytest.mark.parametrize(
    ("queries", "corpus", "message"),
    [
        (drawn(2, 8), drawn(3, 4), "queries has vectors of 8 numbers and corpus of 4"),
        (np.full((1, 4), np.nan), drawn(3, 4), "queries: vector 0 holds NaN"),
        (drawn(1, 4), np.full((3, 4), np.inf), "corpus: vector 0 holds NaN or inf"),
        (np.full((1, 4), 1e200), drawn(3, 4), "queries: vector 0 holds NaN or inf"),
    ],
)
def test_vectors_that_cannot_be_compared(queries, corpus, message):
    with pytest.raises(ValueError, match=message):
        nearest(queries, corpus, 1)


def test_texts_or_their_vectors(bert):
    texts = ["The judge writes.", "door", "in the garden in the garden"]
    vectors = bert.embed(texts)
    expected = cosines(vectors[:1], vectors)
    np.testing.assert_allclose(bert.similarity(texts[:1], texts), expected, atol=1e-6)
    np.testing.assert_allclose(similarities(vectors[:1], vectors), expected, atol=1e-6)
    by_text = bert.search(["The judge writes."], texts, k=2)
    assert isinstance(by_text, Hits)
    by_vector = bert.search(vectors[:1], vectors, k=2)
    np.testing.assert_array_equal(by_text.indices, by_vector.indices)
    assert by_text.indices[0, 0] == 0
    # One text or vector, in place of a list: without the axis of the list.
    for one in (texts[0], vectors[0]):
        hits = bert.search(one, texts, k=2)
        np.testing.assert_array_equal(hits.indices, by_text.indices[0])
        assert hits.scores.shape == (2,)
        np.testing.assert_allclose(bert.similarity(one, texts), expected[0], atol=1e-6)
    similarity = bert.similarity(texts[0], texts[1])
    assert similarity == pytest.approx(expected[0, 1], abs=1e-6)
    with pytest.raises(ValueError, match="corpus has shape .3,. and dtype float64"):
        bert.search(texts, np.zeros(3))
    with pytest.raises(ValueError, match="k=0 must be at least 1"):
        bert.search(texts, texts, k=0)


def test_vectors_of_bfloat16_are_searched(bert):
    vectors = np.asarray(jnp.bfloat16(bert.embed(["The judge writes.", "door"])))
    assert bert.search(vectors[1], vectors, k=1).indices.tolist() == [1]
    expected = cosines(*2 * [np.float32(vectors)])
    np.testing.assert_allclose(bert.similarity(vectors, vectors), expected, atol=1e-6)


def test_a_search_is_quiet_unless_asked(bert, monkeypatch, capfd):
    """However long it takes: each look at the clock is two seconds later."""
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", itertools.count(0.0, 2.0).__next__)
        for progress in (False, True):
            printed = capfd.readouterr()
            assert printed.out + printed.err == ""
            bert.search(["door"], ["garden", "door"], progress=progress)
            bert.similarity(["door"], ["garden"], progress=progress)
            bert.embed(["door"], progress=progress)
    lines = capfd.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "1/1 texts of queries embedded",
        "2/2 texts of corpus embedded",
        "2/2 vectors searched",
        "1/1 texts of a embedded",
        "1/1 texts of b embedded",
        "1/1 texts embedded",
    ]


def test_queries_and_texts_have_the_prompts_of_the_model(bert):
    from bert_jax.config.embedding import Embedding

    names, prompts = ("query", "passage"), ("The judge: ", "The baker: ")
    other = bert_jax.Predictor(
        bert.config,
        bert.params,
        bert.tokenizer,
        embedding=Embedding(prompt_names=names, prompt_texts=prompts),
    )
    texts = ["door", "garden", "candle", "letter"]
    asked, stored = (bert.embed(texts, prompt=text) for text in prompts)
    expected = nearest(asked, stored, 4)
    found = other.search(texts, texts, 4)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-6)
    plain = other.search(texts, texts, 4, query_prompt="", corpus_prompt="")
    assert np.abs(plain.scores - found.scores).max() > 1e-3


@pytest.mark.parametrize(
    ("asked", "stored", "options", "message"),
    [
        (["door"], drawn(3), {}, "queries has vectors of 16 numbers and corpus of 8"),
        (drawn(3), ["door"], {}, "queries has vectors of 8 numbers and corpus of 16"),
        (["door"], ["door", "\ud800"], {}, r"corpus\[1\].* half of a surrogate"),
        (["door"], ["door"], {"corpus_prompt": "x"}, "prompt='x' is not the name of"),
        (["door"], ["door"], {"batch_size": 0}, "batch_size=0 must be at least 1"),
    ],
)
def test_arguments_are_checked_before_anything_is_computed(
    bert, asked, stored, options, message
):
    """Also in a model whose parameters could not be computed with."""
    empty = bert_jax.Predictor(bert.config, {}, bert.tokenizer)
    with pytest.raises(ValueError, match=message):
        empty.search(asked, stored, **options)
