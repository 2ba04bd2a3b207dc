"""Examples: how a pair is cut, and how some of many become a batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.examples import from_rows, join_pair
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

TOKENIZER = Tokenizer(
    {"kind": "wordpiece", "cased": False}, "\n".join(SPECIAL_TOKENS).encode()
)
CLS, SEP = TOKENIZER.cls_id, TOKENIZER.sep_id
IDS = st.lists(st.integers(5, 99), max_size=20)


def cut_as_in_2018(first: list[int], second: list[int], room: int) -> None:
    """`_truncate_seq_pair` of the code of 2018, which pops one token at a time."""
    while len(first) + len(second) > room:
        longer = first if len(first) > len(second) else second
        longer.pop()


@given(IDS, IDS, st.integers(8, 50))
def test_pairs_are_cut_as_in_2018(first, second, most):
    ids, boundary = join_pair(TOKENIZER, first, second, max_length=most)
    cut_as_in_2018(first, second, most - 3)
    assert ids == [CLS, *first, SEP, *second, SEP]
    assert boundary == len(first) + 2 and len(ids) <= most


@given(IDS, st.integers(8, 50))
def test_a_single_text_is_cut_at_its_end(first, most):
    ids, boundary = join_pair(TOKENIZER, first, max_length=most)
    assert ids == [CLS, *first[: most - 2], SEP]
    assert boundary == len(ids) <= most, "there is no second segment"


ROWS = [([2, 7, 3], 3), ([2, 8, 9, 3, 7, 3], 4), ([2, 3], 2), ([2, 9, 9, 3], 4)]


def examples(**options):
    number = len(ROWS) // options.get("choices", 1)
    return from_rows(ROWS, np.arange(number, dtype=np.int32), **options)


def test_a_batch_by_hand():
    found = examples(by_example={"label": np.array([4, 5, 6, 7], np.int32)})
    assert len(found) == 4 and found.lengths.tolist() == [3, 6, 2, 4]
    batch = found.gather(np.array([1, -1, 0]), 8)
    assert batch["tokens"].tolist() == [
        [2, 8, 9, 3, 7, 3, 0, 0],
        [0] * 8,
        [2, 7, 3, 0, 0, 0, 0, 0],
    ]
    assert batch["second"].tolist() == [4, 0, 3]
    assert batch["end"].tolist() == [6, 0, 3]
    assert batch["row"].tolist() == [1, -1, 0]
    assert batch["label"].tolist() == [5, -1, 4]
    assert {values.dtype for values in batch.values()} == {np.dtype(np.int32)}
    assert found.by_example["label"].tolist() == [4, 5, 6, 7], "left as they were"


@pytest.mark.parametrize("labels", [np.arange(8.0).reshape(4, 2), np.arange(4.0)])
def test_padding_has_no_number(labels):
    found = examples(by_example={"label": labels.astype(np.float32)})
    label = found.gather(np.array([3, -1]), 8)["label"]
    np.testing.assert_array_equal(label[0], labels[3])
    assert np.isnan(label[1]).all()


def test_padding_has_none_of_several_classes():
    classes = np.array([[0, 1], [1, 1], [0, 0], [1, 0]], np.int32)
    label = examples(by_example={"label": classes}).gather(np.array([-1, 1]), 8)
    assert label["label"].tolist() == [[-1, -1], [1, 1]]


def test_other_arrays_stay_on_the_host():
    found = examples(by_example={"offset": np.arange(4)})
    assert set(found.gather(np.array([0]), 8)) == {"tokens", "second", "end", "row"}


def test_labels_of_tokens_are_padded_with_none():
    labels = np.arange(15, dtype=np.int32)
    found = examples(by_token={"label": labels, "word": labels * 2})
    batch = found.gather(np.array([3, -1, 2]), 5)
    assert batch["label"].tolist() == [
        [11, 12, 13, 14, -1],
        [-1] * 5,
        [9, 10, -1, -1, -1],
    ]
    assert "word" not in batch
    assert found.token_values("word", 2).tolist() == [18, 20]


def test_choices_are_rows_of_one_example():
    found = examples(choices=2, by_example={"label": np.array([1, 0], np.int32)})
    assert len(found) == 2 and found.lengths.tolist() == [6, 4]
    assert list(found.rows_of(1)) == [2, 3]
    batch = found.gather(np.array([-1, 1]), 6)
    assert batch["tokens"].tolist() == [
        [[0] * 6, [0] * 6],
        [[2, 3, 0, 0, 0, 0], [2, 9, 9, 3, 0, 0]],
    ]
    assert batch["end"].tolist() == [[0, 0], [2, 4]]
    assert batch["second"].tolist() == [[0, 0], [2, 4]]
    assert batch["row"].tolist() == [-1, 1] and batch["label"].tolist() == [-1, 0]
