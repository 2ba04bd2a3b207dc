"""Several pairs in a row: none is lost or changed, and little room is left."""

import dataclasses
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import PrepareConfig
from bert_jax.data.chunks import Layout
from bert_jax.data.dataset_manifest import SPLITS
from bert_jax.data.packing import assign_rows, build_rows, max_pairs_per_row, pack_pairs
from bert_jax.data.pairs import PairSpans, make_pairs
from bert_jax.data.prepare import prepare
from bert_jax.data.records import open_dataset
from bert_jax.data.shards import row_dtype

CLS, SEP, PAD = 1, 2, 0


def one_a_row(spans, width, most=1):
    """Rows of one pair each; a span's tokens are numbered from 100 on."""
    columns = np.array(spans, np.int64).reshape(-1, 5).T.copy()
    tokens = np.arange(100, 100 + max([0, *columns[1], *columns[3]]), dtype=np.int32)
    dtype = row_dtype(width, 60_000, most)
    return build_rows(tokens, PairSpans(*columns, dropped={}), dtype, CLS, SEP, PAD)


def pairs_of(rows):
    """Each pair's tokens, where its second segment starts in them, and its label."""
    found = []
    for row in rows:
        for first, second, end, label in zip(
            *(row[name].tolist() for name in row.dtype.names[1:]), strict=True
        ):
            if end:
                tokens = tuple(row["tokens"][first:end].tolist())
                found.append((tokens, second - first, label))
    return found


def test_rows_by_hand():
    # Lengths 8, 5, 7, 4 and 12: the second fits behind the third, the fourth with the
    # first, and the last fills a row.
    spans = (
        (0, 2, 2, 5, 0),
        (5, 6, 8, 9, 1),
        (10, 12, 12, 14, 0),
        (20, 22, 22, 22, -1),
        (30, 34, 34, 39, 0),
    )
    rows = pack_pairs(one_a_row(spans, 12, 3), row_dtype(12, 60_000, 3), PAD)
    first = [1, 100, 101, 2, 102, 103, 104, 2]
    assert rows["tokens"].tolist() == [
        [*first, 1, 120, 121, 2],
        [1, 105, 2, 108, 2, 1, 110, 111, 2, 112, 113, 2],
        [1, 130, 131, 132, 133, 2, 134, 135, 136, 137, 138, 2],
    ]
    assert rows["first"].tolist() == [[0, 8, 0], [0, 5, 0], [0, 0, 0]]
    assert rows["second"].tolist() == [[4, 12, 0], [3, 9, 0], [6, 0, 0]]
    assert rows["end"].tolist() == [[8, 12, 0], [5, 12, 0], [12, 0, 0]]
    assert rows["next_sentence_label"].tolist() == [
        [0, -1, -1],
        [1, 0, -1],
        [0, -1, -1],
    ]


def test_what_is_left_of_a_row_is_padding():
    dtype = row_dtype(16, 60_000, 4)
    rows = pack_pairs(one_a_row([(0, 1, 1, 2, 0)] * 2, 16, 4), dtype, pad_id=7)
    assert rows["tokens"][0, 10:].tolist() == [7] * 6


def test_no_pairs_make_no_rows():
    assert pack_pairs(one_a_row([], 12), row_dtype(12, 60_000, 4), PAD).shape == (0,)


def test_rows_are_made_in_blocks_of_bounded_memory():
    spans = [(n, n + 4, n + 4, n + 9, 0) for n in range(2000)]
    tracemalloc.start()
    rows = one_a_row(spans, 2048)
    packed = pack_pairs(rows, row_dtype(2048, 60_000, 64), PAD)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * rows.nbytes
    narrow = one_a_row(spans, 12)
    assert pairs_of(rows) == pairs_of(narrow)
    dtype = row_dtype(2048, 60_000, 64)
    np.testing.assert_array_equal(packed, pack_pairs(narrow, dtype, PAD))


def test_the_fullest_row_with_room_is_chosen():
    # 9 and 7 open rows; 3 leaves none in the second and so goes there, 1 to the first.
    assert assign_rows(np.array([7, 1, 9, 3]), 10, 4).tolist() == [0, 1, 1, 0]


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), max_size=60),
    st.integers(2, 6),
)
def test_no_pair_is_lost_or_changed(lengths, most):
    spans, end = [], 0
    for a, b in lengths:
        spans.append((end, end + a, end + a, end + a + b, 0 if b else -1))
        end += a + b
    before = one_a_row(spans, 32)
    rows = pack_pairs(before, row_dtype(32, 60_000, most), PAD)
    assert sorted(pairs_of(rows)) == sorted(pairs_of(before))
    for row in rows:
        held = row["end"] > 0
        assert held[: held.sum()].all(), "the places in use come first"
        assert row["first"][held].tolist() == [0, *row["end"][held][:-1].tolist()]
        assert not row["tokens"][row["end"].max() :].any()
        assert (
            not row["first"][~held].any()
            and (row["next_sentence_label"][~held] == -1).all()
        )
    # No two rows would fit into one.
    number, total = (rows["end"] > 0).sum(1), rows["end"].max(1).astype(int)
    for i in range(len(rows)):
        for j in range(i):
            assert total[i] + total[j] > 32 or number[i] + number[j] > most


@pytest.mark.parametrize(
    ("objective", "length", "least"),
    [
        ("nsp", 128, 0.98),
        ("nsp", 512, 0.99),
        ("sop", 128, 0.98),
        ("sop", 512, 0.99),
        # A segment ends with a sentence, so that most lack a few tokens: too few for
        # another.
        ("none", 128, 0.89),
        ("none", 512, 0.96),
    ],
)
def test_packed_rows_are_almost_all_tokens(objective, length, least):
    """Chapters of 20 to 300 sentences, in the number that a chunk has of them."""
    rng = np.random.default_rng(0)
    documents, end = [], 0
    for sentences in rng.integers(20, 300, 200):
        lengths = np.minimum(1 + rng.geometric(1 / 20, sentences), 150)
        documents.append(np.cumsum([end, *lengths]).tolist())
        end = documents[-1][-1]
    pairs = make_pairs(documents, length, 0.1, rng, objective)
    second = pairs.second_end - pairs.second_start
    sizes = pairs.first_end - pairs.first_start + second + 2 + (pairs.label >= 0)
    number = assign_rows(sizes, length, max_pairs_per_row(length)).max() + 1
    before = sizes.sum() / (len(sizes) * length)
    after = sizes.sum() / (number * length)
    assert before + 0.02 < least < after


@pytest.fixture(params=["nsp", "sop", "none"])
def config(request, corpus, tokenizer_directory, tmp_path):
    return PrepareConfig(
        input=(str(corpus / "*.txt"),),
        tokenizer=str(tokenizer_directory),
        output=str(tmp_path / "packed"),
        sequence_length=64,
        pairs=request.param,
        pack=True,
        validation_fraction=0.1,
        workers=1,
    )


def test_prepare_packs_the_very_pairs_and_tells_both_paddings(config, tmp_path):
    lines, other_lines, held = [], [], {}
    packed = prepare(config, lines.append)
    unpacked = dataclasses.replace(config, pack=False, output=str(tmp_path / "one"))
    single = prepare(unpacked, other_lines.append)
    for split in SPLITS:
        rows, before = (
            getattr(open_dataset(output, verify=True), split)
            for output in (config.output, unpacked.output)
        )
        every, one = (
            rows.gather(np.arange(len(rows))),
            before.gather(np.arange(len(before))),
        )
        assert sorted(pairs_of(every)) == sorted(pairs_of(one))
        counts, unpacked_counts = packed["counts"][split], single["counts"][split]
        assert len(rows) < len(before) == counts["pairs"]
        shards = [s for s in packed["shards"] if s["split"] == split]
        assert sum(shard["rows"] for shard in shards) == len(rows)
        held[split] = len(rows)
        assert counts["padding"] == (every["tokens"] == PAD).sum()
        assert counts["padding_unpacked"] == unpacked_counts["padding"]
        for name, value in unpacked_counts.items():
            assert counts[name] == value or name == "padding"
    train = packed["counts"]["train"]
    shares = [
        f"{padding / (train['tokens'] + padding):.1%}"
        for padding in (train["padding"], train["padding_unpacked"])
    ]
    assert f"{held['train']} rows for training, {held['validation']} for" in lines[-1]
    assert f"{shares[0]} padding ({shares[1]} unpacked)" in lines[-1]
    assert f"{train['pairs']} rows for training" in other_lines[-1]
    assert f"{shares[1]} padding," in f"{other_lines[-1][:-1]},"


def test_the_same_bytes_whatever_the_workers(config, tmp_path):
    layout = Layout(chunk_bytes=8000, shard_bytes=16_000)
    other = dataclasses.replace(config, output=str(tmp_path / "other"), workers=2)
    found = prepare(config, layout=layout)
    assert prepare(other, layout=layout) == found and len(found["shards"]) > 2
    for shard in found["shards"]:
        one, two = (Path(c.output) / shard["path"] for c in (config, other))
        assert one.read_bytes() == two.read_bytes()


def test_a_packed_dataset_is_not_taken_for_an_unpacked_one(config):
    prepare(config)
    lines = []
    prepare(config, lines.append)
    assert "already complete" in lines[-1]
    with pytest.raises(
        FileExistsError, match="started with other options: pack=True before, None"
    ):
        prepare(dataclasses.replace(config, pack=False))


def test_without_packing_the_manifest_does_not_speak_of_it(config):
    manifest = prepare(dataclasses.replace(config, pack=False))
    assert "pack" not in json.dumps(manifest)
    assert {name: shape for name, _, shape in manifest["row"]}["end"] == [1]
