import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data import pairs as pairs_module
from bert_jax.data.pairs import make_pairs


class Scripted(np.random.Generator):
    """Draws from a script: what `random` gives, and what `binomial` gives."""

    def __new__(cls, *args):
        return super().__new__(cls)

    def __init__(self, uniforms, binomials=()):
        super().__init__(np.random.PCG64(0))
        self.uniforms, self.binomials = iter(uniforms), iter(binomials)

    def random(self):
        return next(self.uniforms)

    def binomial(self, n, p):
        assert p == 0.5
        return np.array([next(self.binomials) if count else 0 for count in n])


def spans(pairs):
    return list(
        zip(
            pairs.first_start.tolist(),
            pairs.first_end.tolist(),
            pairs.second_start.tolist(),
            pairs.second_end.tolist(),
            pairs.label.tolist(),
            strict=True,
        )
    )


def bounds_of(*documents):
    """The bounds of sentences of these lengths, documents one after another."""
    bounds, end = [], 0
    for lengths in documents:
        bounds.append(np.cumsum([end, *lengths]).tolist())
        end = bounds[-1][-1]
    return bounds


def test_pairs_by_hand():
    # Nine tokens and three special ones; documents at 0-3-6-9 and 9-13-17.
    draws = [
        *(1, 0.9, 0.7),  # not short; cut after two of three sentences; follows
        *(1, 0.0, 0.2, 0.0, 0.4),  # cut after one of two; random: sentence 1 on
        *(1, 0.0, 0.0),  # the sentence put back, alone: random: sentence 0 on
    ]
    pairs = make_pairs(bounds_of([3, 3, 3], [4, 4]), 12, 0.1, Scripted(draws, [1, 0]))
    assert spans(pairs) == [
        (0, 6, 6, 9, 0),
        (9, 13, 4, 9, 1),  # 3-9 less one token at the front
        (13, 17, 0, 5, 1),  # 0-6 less one token at the back
    ]
    assert pairs.dropped == {"tokens truncated from pairs": 2}


def test_a_sentence_longer_than_a_row_is_cut_and_gets_a_random_second():
    draws = [1, 0.0, 0.0, 1, 0.0, 0.0]
    pairs = make_pairs(bounds_of([100], [2]), 12, 0.1, Scripted(draws, [40, 60]))
    # 93 + 0 tokens go from the first; then from the second segment of the second pair.
    assert spans(pairs) == [(40, 47, 100, 102, 1), (100, 102, 60, 67, 1)]


def test_equally_long_segments_lose_tokens_in_turn_the_second_first():
    spans = np.array([[0, 10, 10, 20, 0]])
    assert pairs_module._truncate(spans, 13, Scripted([], [3, 4])) == 7
    assert spans.tolist() == [[3, 10, 14, 20, 0]]  # 3 from the first, 4 from the second


@given(st.integers(1, 40), st.integers(1, 40), st.integers(5, 30), st.integers(0, 99))
def test_truncation_takes_as_many_as_one_token_at_a_time(first, second, limit, seed):
    spans = np.array([[0, first, first, first + second, 0]])
    removed = pairs_module._truncate(spans, limit, np.random.default_rng(seed))
    a, b = first, second
    while a + b > limit:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    ((a0, a1, b0, b1, _),) = spans.tolist()
    assert (a1 - a0, b1 - b0) == (a, b)
    assert 0 <= a0 <= a1 <= first <= b0 <= b1 <= first + second
    assert removed == first + second - a - b


def test_truncation_takes_fronts_as_often_as_backs():
    spans = np.tile([0, 40, 40, 50, 0], (4000, 1))
    pairs_module._truncate(spans, 20, np.random.default_rng(0))
    assert abs(spans[:, 0].mean() - 15) < 0.2  # 30 tokens go; deviation 2.7 / √4000
    assert abs(spans[:, 0].var() - 7.5) < 0.7


documents_of_sentences = st.lists(
    st.lists(st.integers(1, 60), min_size=1, max_size=12), min_size=1, max_size=6
)


@given(documents_of_sentences, st.integers(8, 64), st.integers(0, 2**32))
def test_pairs_keep_their_promises(lengths, sequence_length, seed):
    documents = bounds_of(*lengths)
    rng = np.random.default_rng(seed)
    pairs = make_pairs(documents, sequence_length, 0.1, rng)
    first = pairs.first_end - pairs.first_start
    second = pairs.second_end - pairs.second_start
    assert (first >= 1).all() and (second >= 1).all()
    assert (first + second + 3 <= sequence_length).all()
    ends = np.array([bounds[-1] for bounds in documents])

    def document(start, end):
        number = np.searchsorted(ends, start, side="right")
        assert (number == np.searchsorted(ends, end - 1, side="right")).all()
        return number

    same = document(pairs.first_start, pairs.first_end) == document(
        pairs.second_start, pairs.second_end
    )
    assert np.array_equal(same, pairs.label == 0)
    if len(documents) > 1:
        assert "sentences without another document" not in pairs.dropped


@given(documents_of_sentences, st.integers(0, 2**32))
def test_pairs_are_a_function_of_the_seed(lengths, seed):
    documents = bounds_of(*lengths)
    once, again = (
        make_pairs(documents, 32, 0.1, np.random.default_rng(seed)) for _ in range(2)
    )
    assert spans(once) == spans(again)


def test_every_sentence_is_in_a_first_segment_or_follows_one():
    # Rows so long that nothing is truncated: segments then are whole sentences.
    rng = random.Random(0)
    lengths = [[rng.randint(1, 30) for _ in range(50)] for _ in range(5)]
    documents = bounds_of(*lengths)
    pairs = make_pairs(documents, 5000, 1.0, np.random.default_rng(0))
    covered = np.zeros(documents[-1][-1], int)
    for first_start, first_end, second_start, second_end, label in spans(pairs):
        covered[first_start:first_end] += 1
        if label == 0:
            covered[second_start:second_end] += 1
    assert (covered == 1).all()


def test_half_of_the_pairs_of_short_sentences_are_random():
    documents = bounds_of(*[[5] * 400] * 20)
    pairs = make_pairs(documents, 128, 0.0, np.random.default_rng(0))
    # Only the last sentence of a document can stand alone, and be random for that.
    assert abs(pairs.label.mean() - 0.5) < 0.06
    lengths = (
        pairs.first_end - pairs.first_start + pairs.second_end - pairs.second_start
    )
    assert (lengths[pairs.label == 0] >= 120).mean() > 0.9


def test_short_targets_come_as_often_as_asked():
    documents = bounds_of(*[[1] * 20_000] * 2)
    for probability in (0.0, 0.1, 0.5):
        pairs = make_pairs(documents, 128, probability, np.random.default_rng(0))
        lengths = (
            pairs.first_end - pairs.first_start + pairs.second_end - pairs.second_start
        )[pairs.label == 0]
        assert abs((lengths < 125).mean() - probability) < 0.06


def test_one_document_alone_gives_pairs_that_follow_and_counts_the_rest():
    pairs = make_pairs(bounds_of([4, 4, 4]), 64, 0.0, np.random.default_rng(0))
    assert pairs.label.tolist() == [0]
    pairs = make_pairs(bounds_of([4]), 64, 0.0, np.random.default_rng(0))
    assert len(pairs.label) == 0
    assert pairs.dropped == {"sentences without another document": 1}


def test_no_documents_give_no_pairs():
    pairs = make_pairs([], 64, 0.1, np.random.default_rng(0))
    assert len(pairs.label) == 0 and pairs.dropped == {}


def test_random_documents_are_drawn_evenly():
    documents = bounds_of(*[[10] * 3] * 4)
    counts = np.zeros((4, 4), int)
    for seed in range(400):
        pairs = make_pairs(documents, 33, 0.0, np.random.default_rng(seed))
        chosen = pairs.label == 1
        np.add.at(
            counts,
            (pairs.first_start[chosen] // 30, pairs.second_start[chosen] // 30),
            1,
        )
    assert (np.diag(counts) == 0).all()
    others = counts[~np.eye(4, dtype=bool)]
    assert others.min() > 0.75 * others.mean()


@pytest.mark.parametrize("probability", [0.0, 0.999])
def test_the_narrowest_rows_hold_a_token_of_each_segment(probability):
    documents = bounds_of([1, 9, 2], [30], [1])
    pairs = make_pairs(documents, 8, probability, np.random.default_rng(1))
    assert (pairs.first_end > pairs.first_start).all()
    assert (pairs.second_end > pairs.second_start).all()
