"""Words and spans by hand, against a plain loop, and by their distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.masking.units import (
    choose_spans,
    choose_words,
    select_whole_units,
    span_starts,
    unit_starts,
    word_starts,
)

# [CLS] the un ##aff ##able cat [SEP] ##s go [SEP]: the second segment was cut.
MASKABLE = jnp.array([[0, 1, 1, 1, 1, 1, 0, 1, 1, 0]], bool)
CONTINUES = jnp.array([[0, 0, 0, 1, 1, 0, 0, 1, 0, 0]], bool)
T = 32


def test_words_by_hand():
    words = word_starts(MASKABLE, CONTINUES)
    assert words[0].nonzero()[0].tolist() == [1, 2, 5, 7, 8]
    unit = np.asarray(unit_starts(words))[0]
    assert unit[[1, 2, 3, 4, 5, 7, 8]].tolist() == [1, 2, 2, 2, 5, 7, 8]


def test_a_row_cut_inside_a_word_starts_one():
    flags = jnp.ones((1, 3), bool)
    assert word_starts(flags, flags).tolist() == [[True, False, False]]


def test_spans_by_hand():
    """Pieces of words stay in, specials part, and two words are the most."""
    words = word_starts(MASKABLE, CONTINUES)
    starts = span_starts(jax.random.key(0), MASKABLE, words, 1e-9, 2)
    assert starts[0].nonzero()[0].tolist() == [1, 5, 7]
    each = span_starts(jax.random.key(0), MASKABLE, words, 1.0, 2)
    np.testing.assert_array_equal(each, words)


def test_a_long_word_is_whole_or_skipped():
    """Three tokens are due: the long word's, or three of the four short words."""
    maskable, continues = (
        jnp.tile(flags, (4000, 1)) for flags in (MASKABLE, CONTINUES)
    )
    words, count = word_starts(maskable, continues), jnp.full(4000, 3)
    positions, used, _ = choose_words(jax.random.key(0), maskable, words, count, 4)
    assert (np.asarray(used) == [True, True, True, False]).all()
    sets = [set(row[:3]) for row in positions.tolist()]
    short = [found for found in sets if found != {2, 3, 4}]
    assert all(found < {1, 5, 7, 8} for found in short)
    # It is taken if it comes first of the five; the standard error is 0.006.
    assert 1 - len(short) / 4000 == pytest.approx(0.2, abs=0.03)
    left_out = np.bincount([({1, 5, 7, 8} - found).pop() for found in short])
    np.testing.assert_allclose(left_out[[1, 5, 7, 8]] / len(short), 0.25, atol=0.03)


@settings(max_examples=100, deadline=None)
@given(
    rows=st.tuples(
        *[st.tuples(st.lists(st.integers(1, 6), max_size=12), st.integers(0, T))] * 3
    )
)
def test_units_are_taken_one_after_another(rows):
    """Against the plain loop, over three rows that take different numbers of rounds."""
    first, size = np.zeros((3, T), bool), np.full((3, T), T + 1)
    expected = np.zeros((3, T), bool)
    for i, (lengths, left) in enumerate(rows):
        start = 0
        for length in [n for k, n in enumerate(lengths) if sum(lengths[: k + 1]) <= T]:
            unit = slice(start, start + length)
            first[i, start], size[i, unit] = True, length
            if length <= left:
                expected[i, unit] = True
                left -= length
            start += length
    count = np.array([count for _, count in rows])
    taken = jax.jit(select_whole_units)(jnp.asarray(first), jnp.asarray(size), count)
    np.testing.assert_array_equal(taken, expected)


def span_lengths(probability: float, most: int) -> np.ndarray:
    """The words of each span but the rows' last, over 64 rows of 2,048 tokens."""
    shape = (64, 2048)
    words = jax.random.bernoulli(jax.random.key(1), 0.6, shape).at[:, 0].set(True)
    maskable = jnp.ones(shape, bool)
    starts = span_starts(jax.random.key(2), maskable, words, probability, most)
    assert not (starts & ~words).any() and starts[:, 0].all()
    number = np.asarray(words.cumsum(axis=1))
    return np.concatenate(
        [
            np.diff(one[flags])
            for one, flags in zip(number, np.asarray(starts), strict=True)
        ]
    )


@pytest.mark.parametrize(("probability", "most"), [(0.2, 10), (0.5, 3)])
def test_span_lengths_are_geometric_and_clipped(probability, most):
    lengths = span_lengths(probability, most)
    expected = probability * (1 - probability) ** np.arange(most)
    expected[-1] = (1 - probability) ** (most - 1)
    shares = np.bincount(lengths, minlength=most + 1) / len(lengths)
    assert len(shares) == most + 1 and shares[0] == 0
    # Over 17,000 spans; the standard error is at most 0.004.
    np.testing.assert_allclose(shares[1:], expected, atol=0.012)


def test_a_long_span_is_no_likelier_than_a_short_one():
    """Lengths are drawn before places, so that they keep their distribution."""
    maskable = jnp.ones((4000, 8), bool)
    starts = jnp.zeros_like(maskable).at[:, :2].set(True)
    count = jnp.ones(4000, int)
    positions, used, _ = choose_spans(jax.random.key(0), maskable, starts, count, 1)
    assert used.all()
    # Never inside the span of seven; the standard error is 0.008.
    assert np.bincount(positions[:, 0])[0] == pytest.approx(2000, abs=140)
    assert set(positions[:, 0].tolist()) == {0, 1}
