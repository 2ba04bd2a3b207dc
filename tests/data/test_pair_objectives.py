"""Sentence order, and single segments: what they promise, and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.packing import build_rows
from bert_jax.data.pairs import make_pairs
from bert_jax.data.shards import row_dtype

documents_of_sentences = st.lists(
    st.lists(st.integers(1, 60), min_size=1, max_size=12), min_size=1, max_size=6
)


def bounds_of(*documents):
    bounds, end = [], 0
    for lengths in documents:
        bounds.append(np.cumsum([end, *lengths]).tolist())
        end = bounds[-1][-1]
    return bounds


def made(documents, length, objective, short=0.0, seed=0):
    rng = np.random.default_rng(seed)
    pairs = make_pairs(documents, length, short, rng, objective)
    columns = (
        pairs.first_start,
        pairs.first_end,
        pairs.second_start,
        pairs.second_end,
        pairs.label,
    )
    return np.stack(columns, 1), pairs.dropped


@given(documents_of_sentences, st.integers(8, 64), st.integers(0, 2**32))
def test_ordered_pairs_are_neighbours_in_one_document(lengths, length, seed):
    documents = bounds_of(*lengths)
    spans, dropped = made(documents, length, "sop", 0.1, seed)
    ends = [bounds[-1] for bounds in documents]
    for a, b, c, d, label in spans.tolist():
        assert b > a and d > c and (b - a) + (d - c) + 3 <= length
        document = np.searchsorted(ends, [a, c, b - 1, d - 1], side="right")
        assert len(set(document.tolist())) == 1
        assert label == (c < a), "swapped pairs, and no others, have the label 1"
    alone = sum(len(sentences) == 1 for sentences in lengths)
    assert dropped.get("sentences without a neighbour", 0) >= alone


def test_half_of_the_ordered_pairs_are_swapped():
    spans, dropped = made(bounds_of(*[[5] * 400] * 20), 128, "sop")
    assert abs(spans[:, 4].mean() - 0.5) < 0.06
    assert (spans[:, 1] - spans[:, 0] + spans[:, 3] - spans[:, 2]).min() > 0
    # Nothing is put back, so every sentence is in one pair, but for single last ones.
    lengths = spans[:, 1] - spans[:, 0] + spans[:, 3] - spans[:, 2]
    lost = dropped.get("sentences without a neighbour", 0)
    assert (
        lengths.sum() + 5 * lost + dropped.get("tokens truncated from pairs", 0)
        == 20 * 400 * 5
    )


def test_a_sentence_that_fills_a_row_alone_is_ordered_with_the_next():
    spans, dropped = made(bounds_of([50, 50, 50]), 23, "sop")
    assert len(spans) == 1 and dropped["sentences without a neighbour"] == 1
    first, second = spans[0, 1] - spans[0, 0], spans[0, 3] - spans[0, 2]
    assert (first, second) == (10, 10)


@given(
    documents_of_sentences,
    st.integers(8, 64),
    st.sampled_from([0.0, 0.5]),
    st.integers(0, 2**32),
)
def test_segments_hold_every_token_once_and_in_order(lengths, length, short, seed):
    documents = bounds_of(*lengths)
    spans, dropped = made(documents, length, "none", short, seed)
    assert not dropped
    assert (spans[:, 4] == -1).all() and (spans[:, 2:4] == spans[:, 1:2]).all()
    assert spans[0, 0] == 0 and spans[-1, 1] == documents[-1][-1]
    assert (spans[1:, 0] == spans[:-1, 1]).all()
    sizes = spans[:, 1] - spans[:, 0]
    assert (sizes >= 1).all() and (sizes + 2 <= length).all()
    for start, end, *_ in spans.tolist():
        inside = [b for b in documents if b[0] <= start and end <= b[-1]]
        assert inside, "a segment never crosses documents"


def test_segments_by_hand():
    # Rows of 12 hold 10 tokens: 4 + 5 fit, then 3; 25 is cut into 10, 10, and its last
    # 5 go on with the 2 after it.
    spans, _ = made(bounds_of([4, 5, 3], [25, 2, 9]), 12, "none")
    assert spans[:, :2].tolist() == [
        [0, 9],
        [9, 12],
        [12, 22],
        [22, 32],
        [32, 39],
        [39, 48],
    ]


def test_a_segment_becomes_a_row_with_one_sep():
    tokens = np.arange(100, 112, dtype=np.int32)
    rng = np.random.default_rng(0)
    pairs = make_pairs(bounds_of([4, 5, 3]), 12, 0.0, rng, "none")
    rows = build_rows(tokens, pairs, row_dtype(12, 200), cls_id=1, sep_id=2, pad_id=0)
    assert rows["tokens"].tolist() == [
        [1, *range(100, 109), 2, 0],
        [1, 109, 110, 111, 2, *[0] * 7],
    ]
    assert rows["second"].tolist() == rows["end"].tolist() == [[11], [5]]
    assert (rows["next_sentence_label"] == -1).all()


@pytest.mark.parametrize("objective", ["sop", "none"])
def test_a_function_of_the_seed(objective):
    documents = bounds_of([5, 9, 2, 7] * 5, [30, 3] * 9)
    once, _ = made(documents, 32, objective, 0.3, 7)
    again, _ = made(documents, 32, objective, 0.3, 7)
    other, _ = made(documents, 32, objective, 0.3, 8)
    assert once.tolist() == again.tolist() != other.tolist()
