import json

import numpy as np
import pytest
from etils import epath

from bert_jax.data import records
from bert_jax.data.records import open_dataset, row_dtype, shard_name, write_rows
from bert_jax.manifest import MANIFEST, DamagedError, describe_files

ROWS = {"train": (5, 0, 3, 7), "validation": (2,)}


@pytest.fixture
def root(tmp_path):
    """A dataset whose row number n of a split holds n in every token."""
    root = epath.Path(tmp_path)
    (root / "tokenizer").mkdir()
    (root / "tokenizer" / "vocab.txt").write_text("[PAD]\n")
    dtype, shards = row_dtype(8, 100), []
    for split, sizes in ROWS.items():
        start = 0
        for number, size in enumerate(sizes):
            rows = np.zeros(size, dtype)
            rows["tokens"] = np.arange(start, start + size)[:, None]
            rows["second"], rows["end"] = 3, 8
            start += size
            name = shard_name(split, number, len(sizes))
            write_rows(root / name, rows)
            (entry,) = describe_files(root, [name])
            shards.append(entry | {"split": split, "rows": size})
    manifest = {
        "format_version": records.FORMAT_VERSION,
        "row": records.dtype_to_json(dtype),
        "sequence_length": 8,
        "tokenizer": {
            "fingerprint": "abc",
            "files": describe_files(root, ["tokenizer/vocab.txt"]),
        },
        "shards": shards,
    }
    (root / MANIFEST).write_text(json.dumps(manifest))
    return root


def edit_manifest(root, **changes):
    manifest = json.loads((root / MANIFEST).read_text())
    (root / MANIFEST).write_text(json.dumps(manifest | changes))


def test_rows_are_packed_and_little_endian():
    dtype = row_dtype(128, 30522)
    assert dtype.itemsize == 128 * 2 + 3 * 2 + 1
    assert dtype["tokens"].base == np.dtype("<u2")
    assert row_dtype(128, 65536)["tokens"].base == np.dtype("<u2")
    assert row_dtype(128, 65537)["tokens"].base == np.dtype("<u4")
    assert row_dtype(64, 100, pairs_per_row=4)["end"].shape == (4,)


def test_dtype_survives_json():
    for dtype in (row_dtype(128, 30522), row_dtype(16, 10**5, 3)):
        fields = json.loads(json.dumps(records.dtype_to_json(dtype)))
        assert records.dtype_from_json(fields) == dtype


def test_gather_finds_rows_in_every_shard_in_the_order_asked(root):
    train = open_dataset(root).train
    assert len(train) == 15
    numbers = np.array([14, 0, 7, 5, 4, 8, 0, 14])
    rows = train.gather(numbers)
    assert rows.dtype == row_dtype(8, 100)
    assert np.array_equal(rows["tokens"], np.repeat(numbers[:, None], 8, axis=1))
    assert len(train.gather(np.array([], np.int64))) == 0


@pytest.mark.parametrize("number", [-1, 15])
def test_gather_refuses_rows_that_are_not_there(root, number):
    with pytest.raises(IndexError, match="among the 15 rows"):
        open_dataset(root).train.gather(np.array([0, number]))


def test_columns_are_contiguous(root):
    batch = records.columns(open_dataset(root).validation.gather(np.array([1, 0])))
    assert list(batch) == list(row_dtype(8, 100).names)
    assert all(array.flags.c_contiguous for array in batch.values())
    assert batch["tokens"].dtype == np.uint16 and batch["second"].shape == (2, 1)


def test_a_dataset_without_validation_has_no_such_rows(root):
    shards = json.loads((root / MANIFEST).read_text())["shards"]
    edit_manifest(root, shards=[s for s in shards if s["split"] == "train"])
    assert len(open_dataset(root).validation) == 0


def test_fingerprint_is_of_the_content_alone(root, tmp_path):
    before = open_dataset(root).fingerprint
    moved = root.rename(tmp_path.parent / "moved")
    edit_manifest(moved, sources=["elsewhere"])
    assert open_dataset(moved).fingerprint == before
    edit_manifest(moved, tokenizer={"fingerprint": "abd", "files": []})
    assert open_dataset(moved).fingerprint != before


def test_a_missing_shard_is_named(root):
    (root / "train-00002-of-00004.npy").unlink()
    with pytest.raises(DamagedError, match="train-00002-of-00004.npy is missing"):
        open_dataset(root)


def test_a_truncated_shard_is_named(root):
    path = root / "train-00000-of-00004.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedError, match="train-00000-of-00004.npy has 370 bytes"):
        open_dataset(root)


def test_a_flipped_bit_is_found_by_its_checksum(root):
    path = root / "validation-00000-of-00001.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    open_dataset(root, verify=False)
    with pytest.raises(DamagedError, match="validation-00000.* another sha256"):
        open_dataset(root, verify=True)


@pytest.mark.parametrize(
    ("place", "what"), [(1, "not a shard"), (40, "not a shard|other rows")]
)
def test_a_damaged_header_is_found_without_a_checksum(root, place, what):
    path = root / "train-00000-of-00004.npy"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=what):
        open_dataset(root)


def test_a_damaged_tokenizer_is_found_by_its_checksum(root):
    (root / "tokenizer" / "vocab.txt").write_text("[PAB]\n")
    with pytest.raises(DamagedError, match="vocab.txt has another sha256"):
        open_dataset(root, verify=True)


def test_an_unfinished_dataset_is_refused(root):
    (root / MANIFEST).unlink()
    with pytest.raises(FileNotFoundError, match="absent or unfinished"):
        open_dataset(root)


def test_a_foreign_manifest_is_refused(root):
    (root / MANIFEST).write_text('{"files": []}')
    with pytest.raises(DamagedError, match="not a dataset's manifest.*format_version"):
        open_dataset(root)


def test_another_format_version_is_refused(root):
    edit_manifest(root, format_version=99)
    with pytest.raises(ValueError, match="format version 99"):
        open_dataset(root)


def test_a_shard_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space left"):
        write_rows(epath.Path(tmp_path) / "a.npy", np.zeros(3, row_dtype(8, 100)))
    assert list(tmp_path.iterdir()) == []
