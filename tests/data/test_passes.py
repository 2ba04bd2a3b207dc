"""How often a document is used, and in which pass."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.config import PrepareConfig
from bert_jax.data.chunks import plan_chunks
from bert_jax.data.corpus import Corpus
from bert_jax.data.documents import Documents
from bert_jax.data.passes import held_out, num_passes, passes
from bert_jax.data.text_report import TextReport


def corpus_of(*counts, inputs=None):
    """A source of so many documents each, one an input."""
    file = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(file))
    sources = [{"name": f"{number}.txt"} for number in range(len(counts))]
    names = [source["name"] for source in sources]
    return Corpus(
        Documents(file, place, np.full(len(file), 100)),
        names,
        sources,
        np.array(range(len(counts)) if inputs is None else inputs),
        TextReport(),
    )


def config_of(inputs=1, **options):
    names = tuple(f"{number}.txt" for number in range(inputs))
    return PrepareConfig(input=names, tokenizer="t", output="o", **options)


def orders_of(config, corpus):
    return passes(config, corpus, np.ones(len(corpus.documents), bool))


@settings(deadline=None)
@given(
    st.lists(st.floats(0.05, 5), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(0, 9),
)
def test_a_document_is_used_as_its_weight_says(weights, repeats, seed):
    corpus = corpus_of(*[200] * len(weights))
    config = config_of(len(weights), weights=tuple(weights), repeats=repeats, seed=seed)
    orders = orders_of(config, corpus)
    assert len(orders) == math.ceil(round(max(weights) * repeats, 9))
    for order in orders:
        assert len(set(order.tolist())) == len(order)  # once in a pass at most
    uses = np.bincount(np.concatenate(orders), minlength=len(corpus.documents))
    for number, weight in enumerate(weights):
        exact = weight * repeats
        of_input = uses[corpus.documents.file == number]
        assert set(of_input.tolist()) <= {math.floor(exact), math.ceil(exact)}
        part = exact % 1
        # Of 200 draws: five standard deviations and a rounding.
        spread = 5 * math.sqrt(200 * part * (1 - part)) + 1
        assert abs(of_input.sum() - 200 * exact) <= spread
        # Every pass has as much of it as another.
        shares = [np.sum(corpus.documents.file[order] == number) for order in orders]
        mean = 200 * exact / len(orders)
        assert all(abs(share - mean) <= 5 * math.sqrt(mean) + 2 for share in shares)


def test_one_pass_is_the_shuffle_of_the_seed():
    (order,) = orders_of(config_of(seed=3), corpus_of(50))
    assert order.tolist() == np.random.default_rng(3).permutation(50).tolist()


def test_passes_differ_in_order_and_chunks_in_their_seed():
    config, corpus = config_of(repeats=3, validation_fraction=0.1), corpus_of(100)
    first, second, third = orders_of(config, corpus)
    assert sorted(first) == sorted(second) == sorted(third)
    assert first.tolist() != second.tolist() != third.tolist()
    chunks = plan_chunks(config, corpus)
    assert len({chunk.seed for chunk in chunks}) == len(chunks) == 4
    validation = [chunk for chunk in chunks if chunk.split == "validation"]
    held = set(np.flatnonzero(held_out(config, corpus)).tolist())
    assert [set(chunk.documents.offset.tolist()) for chunk in validation] == [held]
    for chunk in chunks[:-1]:
        assert len(set(chunk.documents.offset.tolist())) == len(chunk.documents)
        assert not held & set(chunk.documents.offset.tolist())


def test_validation_is_the_same_whatever_the_weights():
    corpus = corpus_of(100, 100)
    plain = held_out(config_of(2, validation_fraction=0.1), corpus)
    options = {"weights": (0.1, 3.0), "repeats": 2, "validation_fraction": 0.1}
    assert held_out(config_of(2, **options), corpus).tolist() == plain.tolist()
    chunks = plan_chunks(config_of(2, **options), corpus)
    held = [len(chunk.documents) for chunk in chunks if chunk.split == "validation"]
    assert sum(held) == plain.sum() > 5


def test_a_split_that_depends_on_the_whole_corpus_is_said(caplog):
    caplog.set_level("INFO")
    assert held_out(config_of(validation_fraction=0.1), corpus_of(100)).sum() > 2
    assert not caplog.messages
    assert held_out(config_of(validation_fraction=1e-6), corpus_of(100)).sum() == 2
    assert "1e-06 of 100 documents chooses fewer than two" in caplog.text


def test_a_weight_is_of_the_input_that_names_the_source():
    corpus = corpus_of(30, 30, 30, inputs=[1, 0, 1])
    config = config_of(2, weights=(2.0, 1.0))
    uses = np.bincount(np.concatenate(orders_of(config, corpus)))
    assert uses.tolist() == [1] * 30 + [2] * 30 + [1] * 30


def test_rounding_makes_no_further_pass():
    assert (
        num_passes(config_of(1, weights=(0.7,), repeats=10)) == 7
    )  # 7.000000000000001
    assert num_passes(config_of(1, weights=(0.1,), repeats=3)) == 1


def test_a_pass_of_one_document_is_refused():
    config = config_of(1, weights=(0.05,))
    with pytest.raises(
        ValueError, match=r"weights=\(0.05,\) and repeats=1 leave \d doc"
    ):
        orders_of(config, corpus_of(4))
