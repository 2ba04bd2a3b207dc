"""Tokenized examples on disk: read back the same, made again where they must be."""

import numpy as np
import pytest
from etils import epath

from bert_jax.data.example_cache import cached_examples, content_key
from bert_jax.data.examples import TokenizedExamples, from_rows


def made(calls: list[int]) -> TokenizedExamples:
    calls.append(1)
    return from_rows(
        [([2, 7, 3], 3), ([2, 8, 3, 9, 3], 3)],
        np.array([0], np.int32),
        by_example={"label": np.array([1], np.int32), "cut": np.array([True])},
        by_token={"offset": np.arange(16, dtype=np.int32).reshape(8, 2)},
        choices=2,
    )


def assert_same(one: TokenizedExamples, other: TokenizedExamples) -> None:
    assert one.choices == other.choices
    for name in ("tokens", "starts", "second", "example"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a.dtype, a.tolist()) == (b.dtype, b.tolist())
    for name in ("by_example", "by_token"):
        a, b = getattr(one, name), getattr(other, name)
        assert a.keys() == b.keys()
        for key, values in a.items():
            assert (values.dtype, values.tolist()) == (b[key].dtype, b[key].tolist())


def test_examples_are_made_once_for_a_key(tmp_path):
    directory, calls = epath.Path(tmp_path) / "cache", []
    first = cached_examples(directory, "one", lambda: made(calls))
    again = cached_examples(directory, "one", lambda: made(calls))
    assert len(calls) == 1
    assert_same(first, again)
    cached_examples(directory, "other", lambda: made(calls))
    assert len(calls) == 2
    assert {path.name for path in directory.iterdir()} == {"one.npz", "other.npz"}


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 and no more", b"words"])
def test_a_damaged_file_is_made_again(tmp_path, damage):
    directory, calls = epath.Path(tmp_path), []
    expected = cached_examples(directory, "one", lambda: made(calls))
    (directory / "one.npz").write_bytes(damage)
    assert_same(cached_examples(directory, "one", lambda: made(calls)), expected)
    assert len(calls) == 2
    assert_same(cached_examples(directory, "one", lambda: made(calls)), expected)
    assert len(calls) == 2


def test_a_key_tells_all_of_its_parts_apart():
    keys = {content_key("a", {"x": 1}), content_key("a", {"x": 2}), content_key("ax")}
    assert len(keys) == 3
    assert content_key({"x": 1, "y": 2}) == content_key({"y": 2, "x": 1})
