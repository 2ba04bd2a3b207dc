"""Masks by their rules: number, places, proportions, and a fresh draw for every key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.config import MaskingConfig
from bert_jax.masking import mask_tokens, prediction_counts
from bert_jax.rows import inputs_of

CLS, SEP, MASK, V, T = 2, 3, 4, 1000, 32


def row(first_length: int, second_length: int, seed: int = 0) -> dict[str, np.ndarray]:
    """[CLS] A [SEP] B [SEP] and padding, of ordinary tokens drawn by the seed."""
    generator = np.random.default_rng(seed)
    ordinary = generator.integers(5, V, first_length + second_length).tolist()
    tokens = [CLS, *ordinary[:first_length], SEP, *ordinary[first_length:], SEP]
    end = len(tokens)
    return {
        "tokens": np.array([tokens + [0] * (T - end)], np.uint16),
        "first": np.array([[0]], np.uint16),
        "second": np.array([[first_length + 2]], np.uint16),
        "end": np.array([[end]], np.uint16),
        "next_sentence_label": np.array([[0]], np.int8),
    }


def stack(rows: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([r[name] for r in rows]) for name in rows[0]}


def config(rate: float = 0.15, max_predictions: int = 8) -> MaskingConfig:
    return MaskingConfig(rate, max_predictions, mask_token_id=MASK, vocab_size=V)


mask = jax.jit(mask_tokens, static_argnums=2)


def test_inputs_of_one_row_by_hand():
    inputs = inputs_of(row(2, 3))
    # [CLS] a a [SEP] b b b [SEP] 0 …
    assert inputs.segment_ids[0, :9].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0]
    assert inputs.attention_mask[0, :9].tolist() == [True] * 8 + [False]
    assert inputs.maskable[0].nonzero()[0].tolist() == [1, 2, 4, 5, 6]
    assert inputs.length.tolist() == [8]


def test_a_row_without_a_pair_is_empty():
    empty = row(2, 3) | {"end": np.array([[0]], np.uint16)}
    inputs = inputs_of(empty)
    assert not inputs.attention_mask.any() and inputs.length.tolist() == [0]
    masked = mask(jax.random.key(0), empty, config())
    assert masked.weights.sum() == 0
    np.testing.assert_array_equal(masked.input_ids, empty["tokens"])


@pytest.mark.parametrize(
    ("length", "expected"),
    # 0.15 · 10 = 1.5 and 0.15 · 30 = 4.5 round to the even neighbour, as in Python.
    [(0, 0), (3, 1), (7, 1), (10, 2), (30, 4), (31, 5), (128, 8)],
)
def test_prediction_counts_by_hand(length, expected):
    assert prediction_counts(128, config())[length] == expected


@settings(max_examples=60, deadline=None)
@given(
    first=st.integers(1, 14),
    second=st.integers(1, 14),
    rate=st.sampled_from([0.01, 0.15, 0.4, 0.9]),
    slots=st.sampled_from([1, 5, 8, 20]),
    seed=st.integers(0, 2**31 - 1),
)
def test_masks_keep_their_rules(first, second, rate, slots, seed):
    batch, masking = row(first, second, seed), config(rate, slots)
    masked = mask(jax.random.key(seed), batch, masking)
    length, ordinary = first + second + 3, first + second
    due = min(slots, max(1, round(rate * length)), ordinary)
    used = np.asarray(masked.weights[0]) > 0
    assert used.sum() == due
    positions = np.asarray(masked.predicted[0])[used]
    assert len(set(positions.tolist())) == due
    special = {0, first + 1, length - 1}
    assert not special & set(positions.tolist()) and positions.max() < length
    tokens = batch["tokens"][0]
    np.testing.assert_array_equal(np.asarray(masked.labels[0])[used], tokens[positions])
    changed = np.flatnonzero(np.asarray(masked.input_ids[0]) != tokens)
    assert set(changed.tolist()) <= set(positions.tolist())


@pytest.fixture(scope="module")
def many() -> dict[str, np.ndarray]:
    """4,000 rows, 16,000 predictions."""
    batch = stack([row(14, 14, seed) for seed in range(4000)])
    masked = mask(jax.random.key(0), batch, config(0.13))
    return {name: np.asarray(values) for name, values in vars(masked).items()}


def test_proportions_of_what_is_shown(many):
    used = many["weights"] > 0
    shown = np.take_along_axis(many["input_ids"], many["predicted"], 1)[used]
    labels = many["labels"][used]
    masked, kept = (shown == MASK).mean(), (shown == labels).mean()
    # Standard error of a share of 16,000 is at most 0.004.
    assert masked == pytest.approx(0.8, abs=0.015)
    assert kept == pytest.approx(0.1, abs=0.012)
    random = shown[(shown != MASK) & (shown != labels)]
    assert random.max() > 0.99 * V and random.min() < 0.01 * V
    assert np.mean(random) == pytest.approx(V / 2, abs=25)


def test_every_ordinary_position_is_as_likely(many):
    used = many["weights"] > 0
    counts = np.bincount(many["predicted"][used], minlength=T)
    ordinary = [*range(1, 15), *range(16, 30)]
    share = counts[ordinary] / used.sum()
    np.testing.assert_allclose(share, 1 / 28, atol=0.008)
    assert counts.sum() == counts[ordinary].sum()


def test_another_key_masks_otherwise_and_the_same_key_the_same():
    batch = row(14, 14)
    one, again, other = (
        mask(jax.random.key(seed), batch, config()) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one.input_ids, again.input_ids)
    assert set(one.predicted[0].tolist()) != set(other.predicted[0].tolist())


def test_fewer_tokens_than_slots():
    """A sequence shorter than the slots gets as many slots as it has tokens."""
    batch = {
        name: values[:, :8] if name == "tokens" else values
        for name, values in row(2, 3).items()
    }
    masked = mask(jax.random.key(0), batch, config(0.9, 20))
    assert masked.predicted.shape == (1, 8)
    assert masked.weights.sum() == 5
    assert jnp.isfinite(masked.weights).all()
