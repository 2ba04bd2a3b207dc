"""The number of tokens to predict while the masking rate changes with the step."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.config import MaskingConfig
from bert_jax.masking.batch import mask_by_row, prediction_counts
from bert_jax.masking.rate_schedule import counts_at_step, masking_rates

T, V, MASK = 40, 100, 4
CONTINUES = np.arange(V) >= 60


def counts(masking: MaskingConfig, run: range, step: int, length: int = T) -> list[int]:
    """The table of a step, computed as in a training step: of a traced number."""
    at_step = jax.jit(lambda step: counts_at_step(step, length, masking, run))
    table: list[int] = at_step(np.int32(step)).tolist()
    return table


def test_counts_by_hand():
    """Of 40 tokens 0.5 are 20, at the middle step 0.3 are 12, at the last 0.1 are 4."""
    masking = MaskingConfig(rate=0.5, max_predictions=T, final_rate=0.1)
    run = range(11)
    assert [counts(masking, run, step)[T] for step in (0, 5, 10)] == [20, 12, 4]
    # 0.1 of 5 tokens is 0.5, which rounds to 0; a row has one prediction at least.
    assert counts(masking, run, 10)[:6] == [0, 1, 1, 1, 1, 1]
    rising = MaskingConfig(rate=0.1, max_predictions=T, final_rate=0.5)
    assert [counts(rising, run, step)[T] for step in (0, 5, 10)] == [4, 12, 20]
    later = range(100, 111)
    assert [counts(rising, later, step)[T] for step in (100, 105, 110)] == [4, 12, 20]
    assert counts(rising, range(1), 0)[T] == 4, "one step alone has the first rate"


@settings(max_examples=15)
@given(
    ends=st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)),
    length=st.integers(1, 64),
    max_predictions=st.integers(1, 64),
    first_step=st.integers(0, 2**30),
    num_steps=st.integers(1, 2**30 - 1),  # the step after the last is an int32, too
    place=st.floats(0, 1),
)
def test_each_step_has_the_counts_of_its_rate(
    ends, length, max_predictions, first_step, num_steps, place
):
    """To the last token, for all lengths, as with the table of a constant rate."""
    masking = MaskingConfig(ends[0], max_predictions, final_rate=ends[1])
    run = range(first_step, first_step + num_steps)
    middle = run[int(place * (num_steps - 1))]
    for step in (run[0], middle, run[-1]):
        rate = float(masking_rates(np.array(step), masking, run))
        fixed = dataclasses.replace(masking, rate=rate, final_rate=None)
        assert counts(masking, run, step, length) == prediction_counts(length, fixed)
    first = masking_rates(np.array(run[0]), masking, run)
    last = masking_rates(np.array(run[-1]), masking, run)
    assert (first, last) == (ends[0], ends[1] if num_steps > 1 else ends[0])


def rows(number: int) -> dict[str, np.ndarray]:
    """Rows of [CLS] a … [SEP] b … [SEP], all T tokens long, of drawn tokens."""
    tokens = np.random.default_rng(0).integers(5, V, (number, T)).astype(np.uint16)
    tokens[:, 0], tokens[:, [19, T - 1]] = 2, 3
    places = {"first": 0, "second": 20, "end": T}
    columns = {
        name: np.full((number, 1), place, np.uint16) for name, place in places.items()
    }
    return {"tokens": tokens, "row": np.arange(number), **columns}


@pytest.mark.parametrize("unit", ["token", "whole_word", "span"])
def test_every_unit_keeps_to_the_counts(unit):
    masking = MaskingConfig(
        rate=0.5,
        max_predictions=20,
        final_rate=0.1,
        unit=unit,
        mask_token_id=MASK,
        vocab_size=V,
    )
    batch, key, run = rows(50), jax.random.key(0), range(11)

    @jax.jit
    def num_predictions(step):
        table = counts_at_step(step, T, masking, run)
        masked = mask_by_row(key, jax.device_put(batch), masking, CONTINUES, table)
        assert masked.predicted.shape == (50, 20), "the same shape at every step"
        return masked.weights.sum(axis=1)

    for step, due in ((0, 20), (5, 12), (10, 4)):
        numbers = np.asarray(num_predictions(np.int32(step)))
        if unit == "whole_word":
            # No further word fits.
            assert (numbers <= due).all() and numbers.mean() > due - 1
        else:
            assert (numbers == due).all()


def test_without_counts_the_rate_is_the_first():
    falling = MaskingConfig(0.5, 20, final_rate=0.1, mask_token_id=MASK, vocab_size=V)
    fixed = dataclasses.replace(falling, final_rate=None)
    masked, expected = (
        jax.jit(functools.partial(mask_by_row, masking=masking))(
            jax.random.key(1), jax.device_put(rows(3))
        )
        for masking in (falling, fixed)
    )
    for a, b in zip(*map(jax.tree.leaves, (masked, expected)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert expected.weights.sum(axis=1).tolist() == [20] * 3
