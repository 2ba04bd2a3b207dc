"""Rows that contain a sequence of tokens."""

import numpy as np
import pytest

from bert_jax.data.records import Rows
from bert_jax.data.search import find_tokens, sequence_starts
from bert_jax.data.shards import row_dtype


def rows_of(tokens: np.ndarray) -> Rows:
    """Rows with these tokens, in shards of a thousand."""
    rows = np.zeros(len(tokens), row_dtype(tokens.shape[1], 100))
    rows["tokens"] = tokens
    shards = [rows[start : start + 1000] for start in range(0, len(rows), 1000)]
    return Rows(rows.dtype, shards)


def by_hand(tokens: np.ndarray, ids: list[int]) -> list[tuple[int, int]]:
    """Each row that contains `ids`, and where they first begin."""
    found = []
    for number, row in enumerate(tokens.tolist()):
        for start in range(len(row) - len(ids) + 1):
            if row[start : start + len(ids)] == ids:
                found.append((number, start))
                break
    return found


@pytest.mark.parametrize("length", [1, 2, 3, 12])
def test_rows_with_a_sequence(length):
    """More rows than a chunk has; few words, so that beginnings repeat: 7 7 8."""
    generator = np.random.default_rng(length)
    tokens = generator.integers(5, 8, (20_000, 12)).astype(np.uint16)
    ids = tokens[12_345, 12 - length :].tolist()
    expected = by_hand(tokens, ids)
    assert any(number > 8192 for number, _ in expected)
    every = find_tokens(rows_of(tokens), ids, len(tokens))
    assert every.first == expected and every.num_rows == len(expected)
    few = find_tokens(rows_of(tokens), ids, 2)
    assert few.first == expected[:2] and few.num_rows == len(expected)


def test_all_places_in_a_row():
    tokens = np.array([[7, 7, 8, 7, 7], [8, 8, 8, 8, 8]])
    expected = [[True, False, False, True], [False] * 4]
    np.testing.assert_array_equal(sequence_starts(tokens, [7, 7]), expected)


def test_a_sequence_longer_than_a_row_is_in_none():
    matches = find_tokens(rows_of(np.full((3, 4), 7, np.uint16)), [7] * 5, 3)
    assert matches.num_rows == 0 and matches.first == []
    assert find_tokens(rows_of(np.zeros((0, 4), np.uint16)), [7], 3).num_rows == 0
