import numpy as np

from bert_jax.data.packing import build_rows
from bert_jax.data.pairs import PairSpans
from bert_jax.data.shards import row_dtype


def make(*spans):
    return PairSpans(*np.array(spans, np.int64).reshape(-1, 5).T.copy(), dropped={})


def test_rows_by_hand():
    tokens = np.arange(100, 120, dtype=np.int32)
    pairs = make((0, 2, 2, 5, 0), (19, 20, 0, 1, 1), (3, 6, 15, 20, 1))
    rows = build_rows(tokens, pairs, row_dtype(11, 200), cls_id=1, sep_id=2, pad_id=0)
    assert rows["tokens"].tolist() == [
        [1, 100, 101, 2, 102, 103, 104, 2, 0, 0, 0],
        [1, 119, 2, 100, 2, 0, 0, 0, 0, 0, 0],
        [1, 103, 104, 105, 2, 115, 116, 117, 118, 119, 2],
    ]
    assert rows["first"].tolist() == [[0], [0], [0]]
    assert rows["second"].tolist() == [[4], [3], [5]]
    assert rows["end"].tolist() == [[8], [5], [11]]
    assert rows["next_sentence_label"].tolist() == [[0], [1], [1]]


def test_padding_need_not_be_zero_and_ids_may_be_large():
    tokens = np.array([70_000, 5], np.int32)
    dtype = row_dtype(8, 100_000)
    rows = build_rows(tokens, make((0, 1, 1, 2, 0)), dtype, 99_998, 99_999, 7)
    assert rows["tokens"].tolist() == [[99_998, 70_000, 99_999, 5, 99_999, 7, 7, 7]]


def test_no_pairs_make_no_rows():
    rows = build_rows(np.empty(0, np.int32), make(), row_dtype(8, 10), 1, 2, 0)
    assert rows.shape == (0,)
