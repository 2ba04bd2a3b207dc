"""The text of records: JSON lines, Parquet, TFDS."""

import collections
import gzip
import json
import os
import subprocess
import sys

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from bert_jax.config import TextConfig
from bert_jax.data.sources import find_sources
from bert_jax.data.structured import read_records


def read(path, dropped=None, **options):
    config = TextConfig(input=(str(path),), output="", **options)
    (source,) = find_sources(config.input)
    return list(read_records(source, config, collections.Counter(dropped)))


def refused(path, **options):
    """The one line in which a file is refused."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read(path, **options)
    assert "\n" not in str(caught.value)
    assert type(caught.value) is ValueError
    return str(caught.value)


@given(st.lists(st.text(min_size=1).filter(str.strip)), st.sampled_from(["\n", "\r\n"]))
def test_each_line_of_json_is_a_record(tmp_path_factory, texts, end):
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    lines = (json.dumps({"n": 1, "body": t}, ensure_ascii=len(t) > 5) for t in texts)
    path.write_text("".join(line + end for line in lines), "utf-8-sig", newline="")
    found = read(path, text_field="body", strict=True)
    expected = [text.encode() for text in texts if text.encode().strip()]
    assert found == expected


def test_blank_lines_are_skipped_and_records_without_text_counted(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    lines = [
        "",
        " ",
        json.dumps({"text": ""}),
        '{"text": " \\n"}',
        '{"text": "a\\n\\nb"}',
    ]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    dropped = collections.Counter()
    config = TextConfig(input=(str(path),), output="")
    (source,) = find_sources(config.input)
    assert list(read_records(source, config, dropped)) == [b"a\n\nb"]
    assert dropped == {"records without text": 2}


def test_what_is_not_utf8_in_json_is_passed_on_or_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    for content, undecodable in (
        (b'{"text": "caf\xe9 \xc3\xa9"}', 1),
        (b'{"text": "half \\ud83d of a pair \\udca9"}', 2),
        (b'{"text": "\\udcc3\\udca9"}', 2),  # not the bytes of a letter
        (b'{"text": "\\ud83d\\udca9 \xff"}', 1),
    ):
        path.write_bytes(b'{"text": "a"}\n' + content)
        text = read(path, strict=False)[1].decode(errors="replace")
        assert text.count("\ufffd") == undecodable
        error = refused(path)
        assert f"{path}:2: 'text' is not UTF-8 at its byte" in error
    path.write_bytes(b'{"text": "a \\ufffd \\ud83d\\udca9", "b": "\xff"}')
    assert read(path) == ["a \ufffd 💩".encode()]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("hello", "not JSON (Expecting value, column 1)."),
        ('{"text": "a', "not JSON (Unterminated string starting at, column 10)."),
        ("[" * 100_000, "not JSON that can be read: it is nested too deep."),
        ('["a"]', 'not an object; each line must be one, such as {"text": "…"}.'),
        ('{"a": 1, "b": 2}', "there is no 'text', but a, b; choose by --text-column."),
        ("{}", "there is no 'text', but nothing; choose by --text-column."),
        ('{"text": null}', "'text' holds null; it must be a string."),
        ('{"text": 3}', "'text' holds a number; it must be a string."),
        ('{"text": true}', "'text' holds a truth value; it must be a string."),
        ('{"text": ["a"]}', "'text' holds an array; it must be a string."),
    ],
)
def test_a_line_that_is_no_such_record_is_named(tmp_path, line, error):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n\n' + line + "\n")
    assert refused(path) == f"{path}:3: {error}"


def test_numbers_of_any_length_beside_the_text_are_no_hindrance(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": ' + "1" * 5000 + ', "text": "a"}')
    assert read(path) == [b"a"]


def test_joined_json_lines_have_several_byte_order_marks(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('\ufeff{"text": "a"}\n\ufeff{"text": "b"}\n\ufeff\n')
    assert read(path) == [b"a", b"b"]


def test_cut_json_lines_are_named(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    lines = "".join(
        json.dumps({"text": os.urandom(9).hex()}) + "\n" for _ in range(999)
    )
    path.write_bytes(gzip.compress(lines.encode())[:-9])
    assert f"{path} is damaged or not gzip (Truncated" in refused(path)


TYPES = [
    pyarrow.string(),
    pyarrow.large_string(),
    pyarrow.string_view(),
    pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_each_row_of_parquet_is_a_record(tmp_path, kind):
    texts = [None, "", " ", *(f"née {n % 7}\n\nx" for n in range(700))]
    column = pyarrow.array(texts).cast(kind)
    objects = [{"text": "another"}] * len(texts)  # "body.text" is in them, too
    table = pyarrow.table({"body": objects, "body.text": column})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    config = TextConfig(
        input=(str(tmp_path / "a.parquet"),),
        output="",
        text_field="body.text",
        strict=True,
    )
    dropped = collections.Counter()
    found = list(read_records(find_sources(config.input)[0], config, dropped))
    assert found == [text.encode() for text in texts[3:]]
    assert dropped == {"records without text": 3}


def test_a_row_group_of_parquet_is_not_in_memory_as_a_whole(tmp_path):
    path = tmp_path / "a.parquet"
    texts = [os.urandom(1000).hex() for _ in range(6000)]  # 12 MB
    parquet.write_table(pyarrow.table({"text": texts}), path, use_dictionary=False)
    (source,) = find_sources([str(path)])
    before, most = pyarrow.total_allocated_bytes(), 0
    config = TextConfig(input=(str(path),), output="")
    for _ in read_records(source, config, collections.Counter()):
        most = max(most, pyarrow.total_allocated_bytes() - before)
    assert 0 < most < 6e6


def test_a_shard_of_parquet_without_any_text_is_read(tmp_path):
    parquet.write_table(pyarrow.table({"text": [None, None]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == []


def test_parquet_that_lacks_the_text_is_refused_with_its_columns(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"id": [1], "body": ["a"]}), path)
    columns = "id (int64), body (string)"
    assert refused(path) == (
        f"{path}: there is no 'text', but {columns}; choose by --text-column."
    )
    assert refused(path, text_field="id") == (
        f"{path}: column 'id' must be a string; the columns are {columns}; "
        "choose by --text-column."
    )
    wide = {f"column_{number}": [1] for number in range(1000)}
    parquet.write_table(pyarrow.table(wide), path)
    assert len(refused(path)) < 400 + len(str(path))


def test_parquet_that_is_not_utf8_is_passed_on_or_refused(tmp_path):
    path, content = tmp_path / "a.parquet", [b"fine", b"caf\xe9"]
    buffers = pyarrow.array(content).buffers()
    column = pyarrow.Array.from_buffers(pyarrow.string(), 2, buffers)
    parquet.write_table(pyarrow.table({"text": column}), path)
    assert read(path, strict=False) == content
    assert f"{path}: row 2: 'text' is not UTF-8 at its byte 3" in refused(path)


def test_damaged_parquet_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    texts = [os.urandom(500).hex() for _ in range(100)]
    table = pyarrow.table({"text": texts})
    parquet.write_table(table, path, write_page_checksum=True)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for content in (b"", b"hello" * 9, whole[:-20], whole[:20_000], bytes(flipped)):
        path.write_bytes(content)
        assert f"{path} is damaged or not Parquet (" in refused(path)


TFDS = """
import collections, json, sys
from pathlib import Path
from bert_jax.config import PrepareConfig, VocabularyConfig
from bert_jax.data.prepare import prepare
from bert_jax.data.structured import _tensorflow_datasets
from bert_jax.data.vocabulary import train_vocabulary

tfds = _tensorflow_datasets()
from tensorflow import string

class Tiny(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")
    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(
            {"text": tfds.features.Text(), "kind": string}))
    def _split_generators(self, manager):
        return {"train": self._generate_examples(20)}
    def _generate_examples(self, count):
        for number in range(count):
            text = f"One is {number}.\\n\\nTwo is n\\u00e9e.".encode()
            text = {3: b"", 5: b"caf\\xe9 is three"}.get(number, text)
            yield number, {"text": text, "kind": "a"}

folder = Path(sys.argv[1])
base = {"input": ("tfds:tiny",), "strict": False, "tfds_data_dir": str(folder / "tfds")}
Tiny(data_dir=base["tfds_data_dir"]).download_and_prepare()
train_vocabulary(VocabularyConfig(**base, output=str(folder / "vocab"), vocab_size=40))
base |= {"tokenizer": str(folder / "vocab"), "output": str(folder / "data")}
manifest = prepare(PrepareConfig(**base, workers=1), lambda line: None)
errors = []
def fail(**options):
    try:
        prepare(PrepareConfig(**base | {"output": str(folder / "no")} | options))
    except ValueError as error:
        errors.append(str(error))
fail(strict=True)
fail(text_field="body")
fail(text_field="kind")
fail(input=("tfds:no_such_dataset",))
fail(tfds_split="validation")
fail(tfds_split="train[:0%]")
(file,) = Path(base["tfds_data_dir"]).rglob("*train.tfrecord*")
content, starts = file.read_bytes(), [0]
while starts[-1] < len(content):  # length, its checksum, content, its checksum
    length = int.from_bytes(content[starts[-1]:][:8], "little")
    starts.append(starts[-1] + 8 + 4 + length + 4)
for end in (starts[-2], starts[-1] - 1):
    file.write_bytes(content[:end])
    fail()
assert not (folder / "no").exists()
json.dump([manifest, errors], open(folder / "result.json", "w"))
"""


def test_a_tfds_dataset_is_prepared(tmp_path):
    """In a process of its own: TensorFlow warns when it is imported."""
    ran = subprocess.run(
        [sys.executable, "-c", TFDS, str(tmp_path)], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    manifest, errors = json.loads((tmp_path / "result.json").read_text())
    assert manifest["dropped"] == {"records without text": 1, "undecodable bytes": 1}
    (source,) = manifest["sources"]
    assert (source["name"], source["documents"]) == ("tfds:tiny", 19)
    counts = manifest["counts"].values()
    # Each has two sentences on lines of their own, but for one.
    assert sum(count["documents"] for count in counts) == 19
    assert sum(count["sentences"] for count in counts) == 18 * 2 + 1
    assert (tmp_path / "vocab").is_dir()
    strict, field, kind, name, split, empty, short, torn = errors
    assert strict.startswith("tfds:tiny: example ") and "of train: 'text' is" in strict
    assert "tfds:tiny: there is no 'body', but text, kind; choose by" in field
    assert "'kind' must be a Text; the features are text (Text), kind (Tensor)" in kind
    assert (
        name
        == "tfds:no_such_dataset cannot be found: Dataset no_such_dataset not found."
    )
    assert "tfds_split='validation': Unknown split 'validation'." in split
    assert "tfds_split='train[:0%]': Instruction [] corresponds to no data." in empty
    unreadable = "tfds:tiny cannot be read, tfds_split='train': "
    assert short.startswith(unreadable) and "contained only 19 elements" in short
    assert torn.startswith(unreadable + "truncated record at ")
    assert not any("\n" in error for error in errors)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_lines_of_json_may_end_in_carriage_returns_and_hold_bad_bytes(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(b'{"text": "caf\xe9"}\r{"text": "b"}\r')
    assert read(path, strict=False) == [b"caf\xe9", b"b"]
    assert f"{path}:1: 'text' is not UTF-8 at its byte 3; fix it" in refused(path)


def test_of_two_texts_in_one_object_none_is_lost(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "n": {"text": 1}, "n": 2}\n')
    assert read(path) == [b"a"], "other keys hold no text"
    path.write_text('{"text": "a", "n": {"text": 1}}\n{"text": "a", "text": "b"}\n')
    assert "a.jsonl:2: the key 'text' occurs twice in an object" in refused(path)
