"""Buckets: which length a row is padded to, and that each row is in one batch."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.config import ExamplesConfig, FinetuneConfig
from bert_jax.data.batches import ExampleBatches
from bert_jax.data.buckets import (
    LENGTHS,
    assign_buckets,
    batches_by_bucket,
    bucketed_batch,
    choose_bucket_boundaries,
)
from bert_jax.data.examples import from_rows


def test_the_smallest_bucket_that_holds_a_row():
    lengths = np.array([0, 1, 16, 17, 48, 49, 65, 97, 129, 200, 257, 385, 512])
    padded = assign_buckets(lengths, 512)
    assert padded.tolist() == [
        *(16, 16, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 512)
    ]


def test_past_the_ladder_by_steps_of_256():
    padded = assign_buckets(np.array([512, 513, 768, 769, 1500]), 2048)
    assert padded.tolist() == [512, 768, 768, 1024, 1536]


def test_never_more_than_the_model_takes():
    assert assign_buckets(np.array([3, 17, 20]), 20).tolist() == [16, 20, 20]
    assert assign_buckets(np.array([600, 700]), 700).tolist() == [700, 700]


def test_another_ladder():
    padded = assign_buckets(np.array([1, 8, 9, 300]), 400, boundaries=(8, 20))
    assert padded.tolist() == [8, 8, 20, 400]


def test_no_rows():
    none = assign_buckets(np.zeros(0, np.int64), 512)
    assert none.shape == (0,) and list(batches_by_bucket(none, 4)) == []


def test_a_row_that_is_too_long_is_named():
    with pytest.raises(ValueError, match="Row 1 has 33 tokens; the model takes 32"):
        assign_buckets(np.array([32, 33]), 32)


def test_batches_of_each_bucket_in_turn():
    buckets = np.array([32, 16, 32, 32, 16, 64])
    found = [(n, rows.tolist()) for n, rows in batches_by_bucket(buckets, 2)]
    assert found == [(16, [1, 4]), (32, [0, 2]), (32, [3]), (64, [5])]


def test_no_batch_without_rows():
    with pytest.raises(ValueError, match="batch_size=0 must be at least 1"):
        list(batches_by_bucket(np.array([16]), 0))


@given(
    st.lists(st.integers(1, 900), max_size=60),
    st.integers(1, 7),
)
def test_each_row_once_and_padded_by_its_own_length_alone(lengths, batch_size):
    rows = np.array(lengths, np.int64)
    buckets = assign_buckets(rows, 900)
    seen = []
    for length, numbers in batches_by_bucket(buckets, batch_size):
        assert 0 < len(numbers) <= batch_size
        assert length in LENGTHS or length % 256 == 0 or length == 900
        for number in numbers:
            assert rows[number] <= length
            assert assign_buckets(rows[[number]], 900).tolist() == [length]
        seen += numbers.tolist()
    assert sorted(seen) == list(range(len(lengths)))


def waste(lengths: np.ndarray, boundaries: tuple[int, ...]) -> int:
    return int((assign_buckets(lengths, boundaries[-1], boundaries) - lengths).sum())


@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=12),
    st.integers(1, 4),
)
def test_no_other_ladder_wastes_less(lengths, number):
    rows = np.array(lengths, np.int64)
    found = choose_bucket_boundaries(rows, number, 128)
    end = -(-int(rows.max()) // 8) * 8
    assert found[-1] == end and list(found) == sorted(set(found))
    assert len(found) <= number
    least = min(
        waste(rows, (*shorter, end))
        for size in range(number)
        for shorter in itertools.combinations(range(8, end, 8), size)
    )
    assert waste(rows, found) == least


def test_boundaries_by_hand():
    lengths = np.array([5] * 10 + [20] * 10 + [61])
    assert choose_bucket_boundaries(lengths, 1, 128) == (64,)
    assert choose_bucket_boundaries(lengths, 2, 128) == (24, 64)
    assert choose_bucket_boundaries(lengths, 3, 128) == (8, 24, 64)
    assert choose_bucket_boundaries(lengths, 9, 128) == (8, 24, 64), (
        "more would be of no use"
    )


def test_no_boundary_is_above_what_the_model_takes():
    assert choose_bucket_boundaries(np.array([3, 9, 30]), 4, 30) == (8, 16, 30)
    assert choose_bucket_boundaries(np.array([9, 12]), 4, 12) == (12,)


def epochs(
    buckets: np.ndarray, seed: int, num_steps: int, batch_size: int
) -> list[np.ndarray]:
    return [
        bucketed_batch(buckets, seed, step, num_steps, batch_size)[1]
        for step in range(num_steps)
    ]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from([8, 16, 32]), min_size=1, max_size=24),
    st.integers(1, 8),
    st.integers(0, 2**32 - 1),
)
def test_training_takes_each_row_once_an_epoch(lengths, batch_size, seed):
    """And over several epochs, if only all of them together fill the batches."""
    buckets = np.array(lengths)
    num_steps = math.lcm(len(buckets), batch_size) // batch_size
    batches = epochs(buckets, seed, num_steps, batch_size)
    counts = np.bincount(np.concatenate(batches), minlength=len(buckets))
    assert set(counts) == {num_steps * batch_size // len(buckets)}
    if len(buckets) % batch_size == 0:
        assert sorted(np.concatenate(batches)) == list(range(len(buckets)))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from([8, 16, 32]), min_size=1, max_size=24),
    st.integers(1, 8),
    st.integers(1, 9),
)
def test_a_row_never_meets_itself(lengths, batch_size, num_steps):
    """But where an epoch ends within a batch, or is smaller than one."""
    buckets = np.array(lengths)
    for step, rows in enumerate(epochs(buckets, 0, num_steps, batch_size)):
        assert len(rows) == batch_size
        if len(buckets) % batch_size == 0:
            assert len(set(rows)) == batch_size, step


def test_a_training_batch_is_a_function_of_seed_and_step():
    buckets = np.random.default_rng(0).choice([8, 16, 32], 600)
    order = np.random.default_rng(1).permutation(150)
    found = {step: bucketed_batch(buckets, 5, int(step), 150, 8) for step in order}
    for step, rows in enumerate(epochs(buckets, 5, 150, 8)):
        np.testing.assert_array_equal(found[step][1], rows)
        assert found[step][0] == buckets[rows].max(), "padded to its longest row"
    other = epochs(buckets, 6, 150, 8)
    assert any((rows != found[step][1]).any() for step, rows in enumerate(other))
    halves = (
        {frozenset(found[step][1].tolist()) for step in range(75)},
        {frozenset(found[step][1].tolist()) for step in range(75, 150)},
    )
    assert not halves[0] & halves[1], "another epoch has other batches"


def test_batches_hold_rows_of_like_length():
    """Less padding than random batches: only windows' seams mix two lengths."""
    lengths = np.random.default_rng(0).integers(3, 64, 1600)
    buckets = assign_buckets(lengths, 64, choose_bucket_boundaries(lengths, 4, 64))
    batches = epochs(buckets, 0, 100, 16)
    mixed = sum(len(set(buckets[rows])) > 1 for rows in batches)
    assert mixed <= 2 * 3, "two windows an epoch, three seams in each"
    real = sum(lengths[rows].sum() for rows in batches)
    padded = sum(buckets[rows].max() * 16 for rows in batches)
    shuffled = np.random.default_rng(1).permutation(1600).reshape(-1, 16)
    at_random = sum(buckets[rows].max() * 16 for rows in shuffled)
    assert 1 - real / padded < 0.25
    assert 1 - real / at_random > 0.4


def test_the_longest_batch_is_of_rows_that_are_learned_from():
    data = ExamplesConfig(max_length=128, num_buckets=3)
    config = FinetuneConfig(data=data, batch_size=8, num_steps=8)
    train = from_rows([([1] * (20 + 40 * (i % 2)), 5) for i in range(64)])
    batches = ExampleBatches(config, train, from_rows([([1] * 120, 120)]), 128)
    most = max(batches.training(step)["tokens"].shape[1] for step in range(8))
    assert batches.longest()["tokens"].shape == (8, most) == (8, 64)
