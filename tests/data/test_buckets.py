"""Buckets: which length a row is padded to, and that each row is in one batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.buckets import LENGTHS, batches_by_bucket, bucket_lengths


def test_the_smallest_bucket_that_holds_a_row():
    lengths = np.array([0, 1, 16, 17, 48, 49, 65, 97, 129, 200, 257, 385, 512])
    padded = bucket_lengths(lengths, 512)
    assert padded.tolist() == [
        *(16, 16, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 512)
    ]


def test_past_the_ladder_by_steps_of_256():
    padded = bucket_lengths(np.array([512, 513, 768, 769, 1500]), 2048)
    assert padded.tolist() == [512, 768, 768, 1024, 1536]


def test_never_more_than_the_model_takes():
    assert bucket_lengths(np.array([3, 17, 20]), 20).tolist() == [16, 20, 20]
    assert bucket_lengths(np.array([600, 700]), 700).tolist() == [700, 700]


def test_another_ladder():
    padded = bucket_lengths(np.array([1, 8, 9, 300]), 400, ladder=(8, 20))
    assert padded.tolist() == [8, 8, 20, 400]


def test_no_rows():
    none = bucket_lengths(np.zeros(0, np.int64), 512)
    assert none.shape == (0,) and list(batches_by_bucket(none, 4)) == []


def test_a_row_that_is_too_long_is_named():
    with pytest.raises(ValueError, match="Row 1 has 33 tokens; the model takes 32"):
        bucket_lengths(np.array([32, 33]), 32)


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
    buckets = bucket_lengths(rows, 900)
    seen = []
    for length, numbers in batches_by_bucket(buckets, batch_size):
        assert 0 < len(numbers) <= batch_size
        assert length in LENGTHS or length % 256 == 0 or length == 900
        for number in numbers:
            assert rows[number] <= length
            assert bucket_lengths(rows[[number]], 900).tolist() == [length]
        seen += numbers.tolist()
    assert sorted(seen) == list(range(len(lengths)))
