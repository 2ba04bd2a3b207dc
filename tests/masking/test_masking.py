"""Masks by their rules: number, places, proportions, and a fresh draw for every key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.config import MaskingConfig
from bert_jax.masking.batch import (
    MaskedBatch,
    mask_by_row,
    mask_tokens,
    prediction_counts,
)
from bert_jax.model.inputs import inputs_of, maskable_tokens

CLS, SEP, MASK, V, T = 2, 3, 4, 1000, 32
CONTINUES = np.arange(V) >= 600
"""Of the ordinary tokens two in five continue a word."""
UNITS = ("token", "whole_word", "span")

Row = dict[str, np.ndarray]


def row(*pairs: tuple[int, int], seed: int = 0) -> Row:
    """[CLS] A [SEP] B [SEP] once or twice, of ordinary tokens drawn by the seed.

    Each pair gives the lengths of its two segments; padding follows.
    """
    generator = np.random.default_rng(seed)
    places = {name: np.zeros((1, 2), np.uint16) for name in ("first", "second", "end")}
    tokens: list[int] = []
    for i, (first_length, second_length) in enumerate(pairs):
        ordinary = generator.integers(5, V, first_length + second_length).tolist()
        places["first"][0, i] = len(tokens)
        places["second"][0, i] = len(tokens) + first_length + 2
        tokens += [CLS, *ordinary[:first_length], SEP, *ordinary[first_length:], SEP]
        places["end"][0, i] = len(tokens)
    padded = np.array([tokens + [0] * (T - len(tokens))], np.uint16)
    return {"tokens": padded, **places}


def stack(rows: list[Row]) -> Row:
    return {name: np.concatenate([r[name] for r in rows]) for name in rows[0]}


def config(rate: float = 0.15, max_predictions: int = 8, **fields) -> MaskingConfig:
    return MaskingConfig(
        rate, max_predictions, mask_token_id=MASK, vocab_size=V, **fields
    )


mask = jax.jit(mask_tokens, static_argnums=2)


def ordinary_positions(batch: Row) -> list[int]:
    """Of a single row, those that hold a token other than [CLS], [SEP] and padding."""
    places = (batch[name][0].tolist() for name in ("first", "second", "end"))
    return [
        position
        for first, second, end in zip(*places, strict=True)
        for position in range(first, end)
        if position not in (first, second - 1, end - 1)
    ]


def words_of(batch: Row) -> list[list[int]]:
    """The positions of each word of a single row."""
    words: list[list[int]] = []
    for position in ordinary_positions(batch):
        follows = bool(words) and words[-1][-1] == position - 1
        if follows and CONTINUES[batch["tokens"][0, position]]:
            words[-1].append(position)
        else:
            words.append([position])
    return words


def predicted(masked: MaskedBatch, batch: Row) -> set[int]:
    """The positions that a single row has to predict, their rules checked."""
    tokens, used = batch["tokens"][0], np.asarray(masked.weights[0]) > 0
    positions = np.asarray(masked.predicted[0])[used]
    found = set(positions.tolist())
    assert len(found) == len(positions)
    assert found <= set(ordinary_positions(batch))
    np.testing.assert_array_equal(np.asarray(masked.labels[0])[used], tokens[positions])
    changed = np.flatnonzero(np.asarray(masked.inputs.input_ids[0]) != tokens)
    assert set(changed.tolist()) <= found
    return found


def test_inputs_of_one_row_by_hand():
    inputs = inputs_of(row((2, 3)))
    # [CLS] a a [SEP] b b b [SEP] 0 …
    assert inputs.segment_ids[0, :9].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0]
    assert inputs.attention_mask[0, :9].tolist() == [True] * 8 + [False]
    assert maskable_tokens(row((2, 3)))[0].nonzero()[0].tolist() == [1, 2, 4, 5, 6]


@pytest.mark.parametrize("unit", UNITS)
def test_a_row_without_a_pair_is_empty(unit):
    empty = row((2, 3)) | {"end": np.zeros((1, 2), np.uint16)}
    inputs = inputs_of(empty)
    assert not inputs.attention_mask.any() and not maskable_tokens(empty).any()
    masked = mask(jax.random.key(0), empty, config(unit=unit), CONTINUES)
    assert masked.weights.sum() == 0
    np.testing.assert_array_equal(masked.inputs.input_ids, empty["tokens"])


@pytest.mark.parametrize(
    ("length", "expected"),
    # 0.15 · 10 = 1.5 and 0.15 · 30 = 4.5 round to the even neighbour, as in Python.
    [(0, 0), (3, 1), (7, 1), (10, 2), (30, 4), (31, 5), (128, 8)],
)
def test_prediction_counts_by_hand(length, expected):
    assert prediction_counts(128, config())[length] == expected


def segments(most: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(1, most), st.integers(1, most))


PAIRS = st.tuples(segments(14)) | st.tuples(segments(6), segments(6))


@pytest.mark.parametrize("unit", UNITS)
@settings(max_examples=30, deadline=None)
@given(
    pairs=PAIRS,
    share=st.sampled_from([(0.01, 8), (0.15, 8), (0.4, 5), (0.9, 20)]),
    seed=st.integers(0, 2**31 - 1),
)
def test_masks_keep_their_rules(unit, pairs, share, seed):
    rate, slots = share
    batch = row(*pairs, seed=seed)
    masked = mask(jax.random.key(seed), batch, config(*share, unit=unit), CONTINUES)
    found, words = predicted(masked, batch), words_of(batch)
    length = sum(a + b + 3 for a, b in pairs)
    due = min(slots, max(1, round(rate * length)))
    if unit == "whole_word":
        assert len(found) <= due
        for word in words:
            left_out = not found & set(word)
            assert len(word) > due - len(found) if left_out else found >= set(word)
        return
    assert len(found) == min(due, length - 3 * len(pairs))
    if unit == "span":
        hidden = [[position in found for position in word] for word in words]
        cut = [parts for parts in hidden if any(parts) and not all(parts)]
        # Only the last span is cut, so of at most one word the end is left.
        assert len(cut) <= 1
        assert all(parts == sorted(parts, reverse=True) for parts in cut)


def test_the_draws_of_single_tokens_stay_as_they_are():
    """Stored; if they change, no run made before can be repeated."""
    masked = mask(jax.random.key(7), row((14, 14)), config())
    assert masked.predicted[0].tolist() == [4, 27, 23, 28, 21, 8, 11, 12]
    assert masked.weights[0].tolist() == [1] * 5 + [0] * 3
    shown = masked.inputs.input_ids[0, masked.predicted[0, :5]]
    assert shown.tolist() == [4, 36, 4, 4, 4]


def test_a_row_s_mask_is_that_of_its_number_whatever_stands_beside_it():
    """Of equal rows, each with a mask of its own."""
    batch = stack([row((14, 14))] * 4) | {"row": np.array([7, 8, 9, 7], np.int32)}
    by_row = jax.jit(mask_by_row, static_argnums=2)
    masked = by_row(jax.random.key(0), jax.device_put(batch), config(0.5, 15))
    first, *others, again = np.asarray(masked.predicted).tolist()
    assert again == first
    assert len({tuple(sorted(places)) for places in (first, *others)}) == 3


@pytest.fixture(scope="module")
def rows() -> Row:
    return stack([row((14, 14), seed=seed) for seed in range(4000)])


@pytest.fixture(scope="module", params=UNITS)
def many(request, rows) -> dict[str, np.ndarray]:
    """4,000 rows with up to 16,000 predictions, for one unit after another."""
    masking = config(0.13, unit=request.param)
    masked = mask(jax.random.key(0), rows, masking, CONTINUES)
    arrays = {
        name: np.asarray(getattr(masked, name))
        for name in ("predicted", "labels", "weights")
    }
    arrays["input_ids"] = np.asarray(masked.inputs.input_ids)
    return arrays | {"unit": request.param}


def test_proportions_of_what_is_shown(many):
    used = many["weights"] > 0
    shown = np.take_along_axis(many["input_ids"], many["predicted"], 1)[used]
    labels = many["labels"][used]
    masked, kept = (shown == MASK).mean(), (shown == labels).mean()
    # Standard error of a share of 16,000 is at most 0.004; a span has one draw for all
    # its tokens, so there are a third as many.
    wider = 2 if many["unit"] == "span" else 1
    assert masked == pytest.approx(0.8, abs=0.015 * wider)
    assert kept == pytest.approx(0.1, abs=0.012 * wider)
    random = shown[(shown != MASK) & (shown != labels)]
    assert random.max() > 0.99 * V and random.min() < 0.01 * V
    assert np.mean(random) == pytest.approx(V / 2, abs=25)


@pytest.mark.parametrize("many", ["token"], indirect=True)
def test_every_ordinary_position_is_as_likely(many):
    used = many["weights"] > 0
    counts = np.bincount(many["predicted"][used], minlength=T)
    ordinary = [*range(1, 15), *range(16, 30)]
    share = counts[ordinary] / used.sum()
    np.testing.assert_allclose(share, 1 / 28, atol=0.008)
    assert counts.sum() == counts[ordinary].sum()


@pytest.mark.parametrize("unit", UNITS)
def test_another_key_masks_otherwise_and_the_same_key_the_same(unit):
    batch, masking = row((14, 14)), config(unit=unit)
    one, again, other = (
        mask(jax.random.key(seed), batch, masking, CONTINUES) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one.inputs.input_ids, again.inputs.input_ids)
    assert predicted(one, batch) != predicted(other, batch)


@pytest.mark.parametrize("unit", UNITS)
def test_rows_masked_one_by_one_under_vmap(unit):
    """Rows differ in how many rounds whole words take; none may disturb another."""
    batch = stack([row((14, 14), seed=seed) for seed in range(6)])
    keys, masking = jax.random.split(jax.random.key(3), 6), config(unit=unit)

    def mask_one(key, one):
        one = {name: values[None] for name, values in one.items()}
        return mask_tokens(key, one, masking, CONTINUES)

    together = jax.jit(jax.vmap(mask_one))(keys, batch)
    for i, key in enumerate(keys):
        one = {name: values[i : i + 1] for name, values in batch.items()}
        alone = mask(key, one, masking, CONTINUES)
        for found, values in zip(
            jax.tree.leaves(together), jax.tree.leaves(alone), strict=True
        ):
            np.testing.assert_array_equal(found[i], values)


@pytest.mark.parametrize("unit", UNITS)
def test_fewer_tokens_than_slots(unit):
    """A sequence shorter than the slots gets as many slots as it has tokens."""
    batch = row((2, 3))
    batch["tokens"] = batch["tokens"][:, :8]
    masked = mask(jax.random.key(0), batch, config(0.9, 20, unit=unit), CONTINUES)
    assert masked.predicted.shape == (1, 8)
    assert masked.weights.sum() == 5
    assert jnp.isfinite(masked.weights).all()


@pytest.mark.parametrize(
    ("unit", "mask_share", "random_share"),
    [("token", 1.0, 0.0), ("span", 0.0, 1.0), ("whole_word", 0.0, 0.0)],
)
def test_shares_by_config(unit, mask_share, random_share):
    shares = {"mask_share": mask_share, "random_share": random_share}
    batch = row((14, 14))
    masking = config(0.9, 20, unit=unit, **shares)
    masked = mask(jax.random.key(0), batch, masking, CONTINUES)
    found = sorted(predicted(masked, batch))
    shown, labels = (
        masked.inputs.input_ids[0, np.array(found)],
        batch["tokens"][0, found],
    )
    assert len(found) > 15
    assert (shown == MASK).all() == (mask_share == 1)
    # One in a thousand random tokens is the label.
    assert (shown == labels).sum() <= 3 or random_share == mask_share == 0
    assert (shown != labels).any() == (mask_share + random_share > 0)


def test_masking_without_the_ids_of_a_tokenizer_is_refused():
    with pytest.raises(ValueError, match="mask_token_id=None; set both, to those of"):
        mask_tokens(jax.random.key(0), row((2, 3)), MaskingConfig())


@pytest.mark.parametrize("unit", ["whole_word", "span"])
def test_words_need_the_table(unit):
    with pytest.raises(ValueError, match=f"unit={unit} needs continues_word, which is"):
        mask_tokens(jax.random.key(0), row((2, 3)), config(unit=unit))


def test_what_a_word_is_shown_as_is_drawn_for_each_token():
    # [CLS] un ##aff ##able [SEP] a [SEP], and three tokens are due.
    tokens = {"tokens": np.array([[CLS, 11, 700, 701, SEP, 12, SEP]], np.uint16)}
    batch = stack([row((3, 1)) | tokens] * 1000)
    shares = {"mask_share": 0.5, "random_share": 0.0}
    masking = config(0.45, 3, unit="whole_word", **shares)
    masked = mask(jax.random.key(0), batch, masking, CONTINUES)
    long = masked.weights.sum(axis=1) == 3
    shown = np.asarray(masked.inputs.input_ids[:, 1:4] == MASK)[long]
    # It comes before the other word half of the time, and can be shown in eight ways.
    assert len(shown) == pytest.approx(500, abs=60)
    ways = np.bincount(shown @ [1, 2, 4], minlength=8) / len(shown)
    np.testing.assert_allclose(ways, 1 / 8, atol=0.06)


def test_what_a_span_is_shown_as_is_drawn_once():
    """Each segment is one span here; one of the two is cut to its first six tokens."""
    spans = {"unit": "span", "span_probability": 1e-9, "max_span": 14}
    masking = config(0.9, 20, mask_share=0.5, random_share=0.5, **spans)
    batch = stack([row((14, 14))] * 1000)
    masked = mask(jax.random.key(0), batch, masking, CONTINUES)
    hidden = np.zeros((1000, T), bool)
    np.put_along_axis(hidden, np.asarray(masked.predicted), True, axis=1)
    shown = np.asarray(masked.inputs.input_ids)
    as_mask = []
    for segment in (slice(1, 15), slice(16, 30)):
        size = hidden[:, segment].sum(axis=1)
        assert set(size.tolist()) == {6, 14}
        masks = (hidden & (shown == MASK))[:, segment].sum(axis=1)
        # One in a thousand random tokens is [MASK], too.
        assert ((masks == size) | (masks <= 2)).all()
        as_mask.append(masks == size)
        assert as_mask[-1].mean() == pytest.approx(0.5, abs=0.07)
        # Random tokens are drawn one by one.
        assert len(np.unique(shown[~as_mask[-1], segment])) > 0.9 * V
    # The two spans of a row are drawn apart.
    assert (as_mask[0] == as_mask[1]).mean() == pytest.approx(0.5, abs=0.07)
