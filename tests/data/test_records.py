import json
import os
import pwd
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from etils import epath

from bert_jax.apps.inspect.doctor import check_cache
from bert_jax.data.dataset_manifest import FORMAT_VERSION
from bert_jax.data.records import columns, open_dataset
from bert_jax.data.shards import dtype_from_json, dtype_to_json, row_dtype, shard_name
from bert_jax.distributed.environment import enable_compilation_cache
from bert_jax.storage import verified_once
from bert_jax.storage.manifest import MANIFEST, DamagedError, describe_files
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

ROWS = {"train": (5, 0, 3, 7), "validation": (2,)}


@pytest.fixture
def root(tmp_path):
    """A dataset whose row number n of a split holds n in every token."""
    return write_dataset(epath.Path(tmp_path), ROWS)


def write_dataset(root, shards_of):
    """A dataset as version 0.1.0 left it; its manifest has no checksum."""
    (root / "tokenizer").mkdir()
    tokenizer = Tokenizer(
        {"kind": "wordpiece", "cased": False}, "\n".join(SPECIAL_TOKENS).encode()
    )
    tokenizer.save(root / "tokenizer")
    dtype, shards = row_dtype(8, 100), []
    for split, sizes in shards_of.items():
        start = 0
        for number, size in enumerate(sizes):
            rows = np.zeros(size, dtype)
            rows["tokens"] = np.arange(start, start + size)[:, None]
            rows["second"], rows["end"] = 3, 8
            start += size
            name = shard_name(split, number, len(sizes))
            np.save(root / name, rows)
            (entry,) = describe_files(root, [name])
            shards.append(entry | {"split": split, "rows": size})
    manifest = {
        "format_version": FORMAT_VERSION,
        "row": dtype_to_json(dtype),
        "sequence_length": 8,
        "vocab_size": 100,
        "pairs": "nsp",
        "options": {},
        "passes": 1,
        "tokenizer": {
            "fingerprint": tokenizer.fingerprint,
            "files": describe_files(root, [f"tokenizer/{n}" for n in tokenizer.files]),
        },
        "sources": [],
        "counts": {},
        "dropped": {},
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
        fields = json.loads(json.dumps(dtype_to_json(dtype)))
        assert dtype_from_json(fields) == dtype


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
    batch = columns(open_dataset(root).validation.gather(np.array([1, 0])))
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
    edit_manifest(moved, sources=[{"name": "elsewhere"}])
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
    ("place", "what"),
    [(1, "not a shard"), (40, "not a shard|other rows"), (9, "not a shard")],
)
def test_a_damaged_header_is_found_without_a_checksum(root, place, what):
    path = root / "train-00000-of-00004.npy"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=what):
        open_dataset(root)


def test_a_damaged_tokenizer_is_found_by_its_checksum(root):
    path = root / "tokenizer" / "vocab.txt"
    path.write_text(path.read_text().replace("[PAD]", "[PAB]"))
    with pytest.raises(DamagedError, match="vocab.txt has another sha256"):
        open_dataset(root, verify=True)


def test_an_unfinished_dataset_is_refused(root):
    (root / MANIFEST).unlink()
    with pytest.raises(FileNotFoundError, match="absent or unfinished"):
        open_dataset(root)


def test_a_text_file_is_refused_as_a_dataset(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("A sentence.")
    with pytest.raises(ValueError, match="corpus.txt is a file; .* `bert-jax prepare`"):
        open_dataset(path)


def test_a_foreign_manifest_is_refused(root):
    (root / MANIFEST).write_text('{"files": []}')
    with pytest.raises(DamagedError, match="has no format_version|altered"):
        open_dataset(root)


def test_another_format_version_is_refused(root):
    edit_manifest(root, format_version=99)
    with pytest.raises(ValueError, match="format version 99"):
        open_dataset(root)


def test_e_a_full_disk_is_named_and_nothing_is_left(tmp_path):
    """RLIMIT_FSIZE stands for a full disk: a write comes back short."""
    code = """
import resource, signal, sys
import numpy as np
from etils import epath
from bert_jax.data.records import write_rows
from bert_jax.data.shards import row_dtype
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.dont_write_bytecode = True
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    write_rows(epath.Path(sys.argv[1]), np.zeros(3000, row_dtype(8, 100)))
except OSError as error:
    print(error)
"""
    path = tmp_path / "a.npy"
    done = run_python(code, str(path))
    assert f"{path} cannot be written: File too large; free space there" in done.stdout
    assert list(tmp_path.iterdir()) == []


def run_python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )


MANY = """
import json, resource, sys
import numpy as np
limits = tuple(json.loads(sys.argv[2]))
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
from bert_jax.data.records import open_dataset
train = open_dataset(sys.argv[1], verify=True).train
numbers = np.random.default_rng(0).permutation(len(train))
rows = train.gather(numbers)
assert (rows["tokens"] == numbers[:, None]).all()
print(len(train), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.fixture(scope="module")
def many_shards(tmp_path_factory):
    """As 0.1.0 would have made of 6 GB of text."""
    root = epath.Path(tmp_path_factory.mktemp("many"))
    return write_dataset(root, {"train": [2] * 1500, "validation": [1]})


@pytest.mark.parametrize(
    ("limits", "soft", "says"),
    [
        ((1024, 1024), 1024, "shards are opened again for each row.*raise `ulimit -n`"),
        ((64, 64), 64, "1501 of 1501 shards are opened again"),
        pytest.param((256, 4096), None, "", marks=pytest.mark.slow),
    ],
)
def test_a2_many_shards_open_whatever_the_limit(many_shards, limits, soft, says):
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < limits[1]:
        pytest.skip("the hard limit is lower here")
    done = run_python(MANY, str(many_shards), json.dumps(limits))
    rows, found = map(int, done.stdout.split())
    assert rows == 3000
    assert found == soft if soft else 1501 < found <= limits[1]
    assert re.search(says, done.stderr) if says else not done.stderr


def damaged(manifest, *path_and_value):
    *path, last, value = path_and_value
    place = manifest
    for key in path:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return manifest


DAMAGES = [
    ("sequence_length", None),
    ("sequence_length", 9),
    ("sequence_length", True),
    ("sequence_length", "8"),
    ("vocab_size", -5),
    ("vocab_size", 1 << 17),
    ("pairs", "nsq"),
    ("options", None),
    ("tokenizer", []),
    ("tokenizer", "fingerprint", None),
    ("tokenizer", "fingerprint", 3),
    ("tokenizer", "files", {}),
    ("tokenizer", "files", 0, "sha256", None),
    ("tokenizer", "files", 0, "path", "/etc/passwd"),
    ("row", []),
    ("row", [[]]),
    ("row", 0, 1, "|O"),
    ("row", 0, 1, "<u8"),
    ("row", 0, 2, 0, 10**12),
    ("row", 0, 2, 0, 7),
    ("row", 1, 0, "fisrt"),
    ("row", 1, 2, 0, 2),
    ("row", 1, 2, 0, -1),
    ("sources", {}),
    ("sources", [3]),
    ("counts", {"test": {}}),
    ("counts", {"train": {"tokens": 1, "padding": 1}}),
    ("counts", {"train": {"tokens": -1}}),
    ("counts", {"train": {"random_share": 1.5}}),
    ("counts", {"train": []}),
    ("dropped", {"a": -1}),
    ("dropped", {"a": "b"}),
    ("shards", "abc"),
    ("shards", 0, 3),
    ("shards", 0, "sha256", None),
    ("shards", 0, "sha256", "abc"),
    ("shards", 0, "rows", None),
    ("shards", 0, "rows", -5),
    ("shards", 0, "rows", 4),
    ("shards", 0, "rows", 5.0),
    ("shards", 0, "size", 372),
    ("shards", 0, "size", True),
    ("shards", 0, "split", "test"),
    ("shards", 0, "split", ["train"]),
    ("shards", 0, "path", "../a.npy"),
    ("shards", 0, "path", "train-00009-of-00004.npy"),
    ("format_version", None),
    ("format_version", True),
    ("format_version", "1"),
    ("stray", 3),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_a3_an_old_manifest_is_looked_at_field_by_field(root, damage):
    """Those of version 0.1.0 have no checksum of their own."""
    manifest = json.loads((root / MANIFEST).read_text())
    open_dataset(root)
    (root / MANIFEST).write_text(json.dumps(damaged(manifest, *damage)))
    with pytest.raises(DamagedError, match=str(root)):
        open_dataset(root)


def test_a3_another_tokenizer_is_damage(root):
    tokenizer = json.loads((root / MANIFEST).read_text())["tokenizer"]
    edit_manifest(root, tokenizer=tokenizer | {"fingerprint": "0" * 64})
    with pytest.raises(DamagedError, match="not the tokenizer that the manifest names"):
        open_dataset(root, verify=True)
    with pytest.raises(DamagedError, match="not the tokenizer that the manifest names"):
        _ = open_dataset(root).tokenizer


@pytest.mark.parametrize("name", ["train-00000-of-00004.npy", MANIFEST])
def test_c2_a_pipe_in_place_of_a_file_is_refused(root, name):
    (root / name).unlink()
    os.mkfifo(root / name)
    with pytest.raises(DamagedError, match=f"{name} is not a regular file"):
        open_dataset(root)


def test_c2_a_link_to_outside_is_refused(root, tmp_path_factory):
    path = root / "train-00000-of-00004.npy"
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "rows.npy"
    path.rename(elsewhere)
    os.symlink(elsewhere, path)
    for verify in (False, True):
        with pytest.raises(DamagedError, match="is a link to outside"):
            open_dataset(root, verify=verify)


def test_a_user_without_a_home_keeps_no_record(dataset, monkeypatch):
    """As in a container: neither a variable nor an entry of the users names one."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    # epath's stat also asks for the name of a file's owner.
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    with pytest.raises(RuntimeError):
        Path.home()
    assert len(open_dataset(dataset.path, verify=True, once=True).train)
    enable_compilation_cache(environment := {})
    assert not environment and not check_cache({}).passed


def test_a_dataset_is_hashed_once(dataset, tmp_path, monkeypatch):
    """Until a file is touched; and always where that is asked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    copy = tmp_path / "rows"
    shutil.copytree(dataset.path, copy)
    shard = next(copy.glob("train-*.npy"))
    time.sleep(verified_once.SETTLED_SECONDS)
    open_dataset(copy, verify=True, once=True)
    (note,) = (tmp_path / "caches" / "bert_jax" / "verified").glob("*[0-9a-f]")
    noted = note.read_text()
    state = json.loads(noted)
    assert {entry[0] for entry in state} >= {shard.name}
    before = note.stat().st_mtime_ns
    open_dataset(copy, verify=True, once=True)
    assert note.stat().st_mtime_ns == before, "it was hashed and noted again"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DamagedError, match="another sha256"):
        open_dataset(copy, verify=True, once=True)
    # One whose file times say that nothing changed.
    entry = next(e for e in state if e[0] == shard.name)
    stat = shard.stat()
    entry[2:] = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    note.write_text(json.dumps(state))
    open_dataset(copy, verify=True, once=True)
    with pytest.raises(DamagedError, match="another sha256"):
        open_dataset(copy, verify=True)
