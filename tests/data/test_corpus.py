"""Sources of every kind, prepared."""

import functools
import gzip
import hashlib
import json
from pathlib import Path

import pyarrow
import pytest
from etils import epath
from pyarrow import parquet

from bert_jax.config import PrepareConfig
from bert_jax.data import chunks, sources
from bert_jax.data.corpus import read_corpus
from bert_jax.data.installed_documentation import make_library, write_corpus
from bert_jax.data.prepare import prepare as prepare_dataset
from bert_jax.data.records import open_dataset
from bert_jax.data.sources import find_sources
from bert_jax.data.unfinished import workspace
from bert_jax.storage.manifest import write_manifest

LAYOUT = chunks.Layout(chunk_bytes=10_000, shard_bytes=20_000)
prepare = functools.partial(prepare_dataset, layout=LAYOUT)


def silent(line):
    pass


def contents(directory):
    root = Path(directory)
    paths = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def shards(directory):
    return {name: c for name, c in contents(directory).items() if name.endswith("npy")}


@pytest.fixture
def documents(corpus):
    """The documents of three files, without the name: it hides the module's here."""
    return [p.read_text().strip("\n").split("\n\n") for p in sorted(corpus.iterdir())]


@pytest.fixture
def config(corpus, tokenizer_directory, tmp_path):
    return PrepareConfig(
        input=(str(corpus / "*.txt"),),
        tokenizer=str(tokenizer_directory),
        output=str(tmp_path / "out" / "data"),
        sequence_length=32,
        validation_fraction=0.1,
        workers=1,
    )


def change(config, **changes):
    return PrepareConfig(**(vars(config) | changes))


def write_as(folder, name, texts):
    """Documents as a file of the kind that its name says."""
    path, texts = folder / name, [text + "\n" for text in texts]
    if ".jsonl" in name:
        content = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    elif name.endswith("parquet"):
        parquet.write_table(pyarrow.table({"text": texts}), path)
        return path
    else:
        content = "\n".join(texts).encode()
    if name.endswith(".gz"):
        content = gzip.compress(content)
    elif name.endswith(".zst"):
        with pyarrow.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(content)
        return path
    path.write_bytes(content)
    return path


KINDS = "a.txt.gz b.zst c.jsonl d.jsonl.gz e.jsonl.zst f.parquet".split()


@pytest.mark.parametrize("name", KINDS)
def test_the_same_documents_give_the_same_dataset_from_any_kind(
    config, documents, tmp_path, name, monkeypatch
):
    texts = sum(documents, [])
    plain = change(config, input=(str(write_as(tmp_path, "a.txt", texts)),))

    # A document's draw for validation hangs on its source's name.
    def nameless(config, sources, folder, report):
        found = read_corpus(config, sources, folder, report)
        assert [source["name"] for source in found.sources] == [sources[0].name]
        found.sources[0]["name"] = "a.txt"
        return found

    monkeypatch.setattr("bert_jax.data.prepare.read_corpus", nameless)
    before = prepare(plain, silent)
    path = write_as(tmp_path, name, texts)
    other = change(config, input=(str(path),), output=str(tmp_path / "other"))
    manifest = prepare(other, silent)
    assert shards(other.output) == shards(plain.output)
    assert len(shards(plain.output)) >= 3
    assert manifest["counts"] == before["counts"]
    content = path.read_bytes()
    assert manifest["sources"] == [
        {
            "name": "a.txt",
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "documents": 120,
        }
    ]
    assert set(contents(other.output)) == set(contents(plain.output))


def test_a_record_is_a_document_whatever_blank_lines_it_holds(config, tmp_path):
    texts = [f"One is {n}.\n\n\r\n \nTwo is {n}.\n\n" for n in range(30)]
    path = write_as(tmp_path, "a.jsonl", texts)
    manifest = prepare(change(config, input=(str(path),)), silent)
    counts = manifest["counts"].values()
    assert sum(count["documents"] for count in counts) == 30
    assert sum(count["sentences"] for count in counts) == 60


def test_sources_of_many_kinds_make_one_dataset_whatever_the_workers(
    config, documents, tmp_path
):
    names = ("b.txt", "a.txt.gz", "c.jsonl")
    inputs = [write_as(tmp_path, *pair) for pair in zip(names, documents, strict=True)]
    mixed = change(config, input=tuple(map(str, inputs)))
    manifest = prepare(mixed, silent)
    listed = [(s["name"], s["documents"]) for s in manifest["sources"]]
    assert listed == [("a.txt.gz", 40), ("b.txt", 40), ("c.jsonl", 40)]
    other = change(mixed, output=str(tmp_path / "other"), workers=2)
    prepare(other, silent)
    assert contents(other.output) == contents(mixed.output)
    open_dataset(other.output, verify=True)


def test_the_documentation_of_what_is_installed_is_prepared(config, monkeypatch):
    folder = Path(pytest.__file__).parent.parent / "_pytest"
    small = make_library("pytest", "1", folder, [p.name for p in folder.glob("*.py")])
    write = functools.partial(write_corpus, libraries=[small], workers=1)
    monkeypatch.setattr(sources, "write_corpus", write)
    manifest = prepare(change(config, input=("installed-documentation",)), silent)
    (source,) = manifest["sources"]
    assert source["name"] == "installed-documentation"
    assert source["documents"] > 20 and source["size"] > 10_000


def test_a_repeated_command_leaves_a_finished_dataset(config, documents, tmp_path):
    path = write_as(tmp_path, "a.jsonl.gz", documents[0])
    given = change(config, input=(str(path),))
    manifest = prepare(given, silent)
    before = {p: p.stat().st_mtime_ns for p in Path(given.output).rglob("*.*")}
    lines = []
    assert prepare(change(given, strict=True, workers=2), lines.append) == manifest
    assert lines == [f"{given.output} is already complete."]
    assert before == {p: p.stat().st_mtime_ns for p in Path(given.output).rglob("*.*")}
    assert not (Path(given.output) / chunks.UNFINISHED).exists()
    with workspace(epath.Path(given.output)) as folder:
        # Another process, such as the same command, does not take the folder away.
        text = folder / "text"
        text.touch()
        prepare(given, silent)
        assert text.exists()
    for options in ({"repeats": 2}, {"deduplicate": True}, {"weights": (2.0,)}):
        with pytest.raises(
            FileExistsError, match="started with other options: .* before, .* now"
        ):
            prepare(change(given, **options), silent)
    assert before == {p: p.stat().st_mtime_ns for p in Path(given.output).rglob("*.*")}


def test_an_interrupted_run_goes_on(config, documents, tmp_path):
    path = write_as(tmp_path, "a.jsonl", documents[0] + documents[1])
    whole = change(config, input=(str(path),), output=str(tmp_path / "whole"))
    prepare(whole, silent)
    given = change(whole, output=config.output)
    unfinished = Path(given.output) / chunks.UNFINISHED
    in_the_way = unfinished / "validation-000000.rows"
    in_the_way.mkdir(parents=True)
    (unfinished / "lock").touch()
    with pytest.raises(OSError, match="Is a directory.*validation-000000"):
        prepare(given, silent)
    in_the_way.rmdir()
    assert not list(Path(given.output).rglob("text"))
    with pytest.raises(FileNotFoundError, match="unfinished"):
        open_dataset(given.output)
    lines = []
    prepare(given, lines.append)
    assert lines[0].startswith("2 of ")
    assert contents(given.output) == contents(whole.output)


@pytest.mark.parametrize("there", [False, True], ids=["new", "empty"])
def test_a_source_that_fails_leaves_nothing(config, tmp_path, there):
    good = write_as(tmp_path, "a.jsonl", ["One. Two."] * 9)
    bad = tmp_path / "b.jsonl"
    bad.write_text('{"text": "a"}\n{"text": "b"\n')
    output = tmp_path / "above" / "data"
    if there:
        output.mkdir(parents=True)
    given = change(config, input=(str(good), str(bad)), output=str(output))
    with pytest.raises(ValueError, match=r"b\.jsonl:2: not JSON"):
        prepare(given, silent)
    assert output.exists() == output.parent.exists() == there
    assert contents(tmp_path / "above") == {}


def test_strict_writes_nothing(config, tmp_path):
    plain = tmp_path / "a.txt"
    plain.write_bytes(b"One. Two.\n\n" * 20 + b"caf\xe9\n")
    packed = tmp_path / "b.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        given = change(config, input=(str(path),), strict=True)
        with pytest.raises(
            ValueError, match=f"{path.name}: byte 0xe9 at 223 is not UTF"
        ):
            prepare(given, silent)
        assert not Path(given.output).parent.exists()
        loose = change(given, strict=False, output=str(tmp_path / path.stem))
        assert prepare(loose, silent)["dropped"]["undecodable bytes"] == 1


def test_a_foreign_output_is_refused_before_anything_is_read(config, tmp_path):
    Path(config.output).mkdir(parents=True)
    (Path(config.output) / "thesis.txt").write_text("mine")
    bad = tmp_path / "b.jsonl"
    bad.write_text("no JSON")
    with pytest.raises(FileExistsError, match="exists and is not a dataset"):
        prepare(change(config, input=(str(bad),)), silent)
    assert contents(config.output) == {"thesis.txt": b"mine"}


def test_a_full_disk_is_named(config, documents, tmp_path):
    path = write_as(tmp_path, "a.jsonl", documents[0])
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "00000.txt").symlink_to("/dev/full")
    sources = find_sources((str(path),))
    with pytest.raises(OSError, match=r"text/00000\.txt cannot be written: No space"):
        read_corpus(change(config, input=(str(path),)), sources, folder, silent)


def test_long_reading_is_reported(config, tmp_path):
    lines = []
    sources = find_sources(config.input)
    read_corpus(config, sources, tmp_path, lines.append, report_seconds=0.0)
    assert lines == [f"{n}/3 sources, {40 * n} documents" for n in (1, 2, 3)]


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".jsonl"])
def test_duplicates_are_dropped_before_the_split(config, documents, tmp_path, suffix):
    first, second, _ = documents
    copies = [text.replace(" ", "  ") for text in first]
    lines = [line for text in second for line in text.split("\n")]
    a = write_as(tmp_path, "a" + suffix, first + first[:5])
    b = write_as(tmp_path, "b" + suffix, copies + second + lines[:6])
    given = change(config, input=(str(a), str(b)), deduplicate=True)
    manifest = prepare(given, silent)
    # How many paragraphs of the made-up documents are alike, is counted here anew.
    seen, documents_seen, kept, dropped = set(), set(), [], {}
    for text in first + first[:5] + copies + second + lines[:6]:
        folded = " ".join(text.split())
        if folded in documents_seen:
            dropped["duplicate documents"] = dropped.get("duplicate documents", 0) + 1
            continue
        documents_seen.add(folded)
        fresh = [line for line in text.split("\n") if line not in seen]
        repeated = len(text.split("\n")) - len(fresh)
        seen.update(fresh)
        for name, count in (
            ("duplicate paragraphs", repeated),
            ("documents of duplicate paragraphs", int(not fresh)),
        ):
            dropped[name] = dropped.get(name, 0) + count
        kept += ["\n".join(fresh)] if fresh else []
    assert {name: manifest["dropped"][name] for name in dropped} == dropped
    assert dropped["duplicate documents"] >= 45
    assert sum(source["documents"] for source in manifest["sources"]) == len(kept)
    found = manifest["counts"].values()
    assert sum(count["documents"] for count in found) == len(kept)
    lines = "\n".join(kept).split("\n")
    assert sum(count["sentences"] for count in found) == sum(
        line.count(". ") + 1 for line in lines
    )


def test_lines_are_not_paragraphs_where_they_are_sentences(config, tmp_path):
    texts = [f"the same\n{n}" for n in range(20)]
    path = write_as(tmp_path, "a.txt", texts + texts[:3])
    given = change(config, input=(str(path),), deduplicate=True, sentences="lines")
    manifest = prepare(given, silent)
    assert manifest["dropped"] == {"duplicate documents": 3}
    assert sum(count["sentences"] for count in manifest["counts"].values()) == 40


def test_weights_and_repeats_multiply_the_training_rows(config, documents, tmp_path):
    a, b, _ = (
        write_as(tmp_path, f"{name}.txt", texts)
        for name, texts in zip("abc", documents, strict=True)
    )
    once = change(config, input=(str(a), str(b)))
    first = prepare(once, silent)
    twice = change(once, repeats=2, weights=(2.0, 0.5), output=str(tmp_path / "more"))
    manifest = prepare(twice, silent)
    assert (first["passes"], manifest["passes"]) == (1, 4)
    assert manifest["options"]["weights"] == [2.0, 0.5]
    held = manifest["counts"]["validation"]["documents"]
    assert held == first["counts"]["validation"]["documents"]
    train = open_dataset(twice.output).manifest["counts"]["train"]
    assert 4 * 30 + 30 < train["documents"] <= 4 * 40 + 40
    other = change(twice, output=str(tmp_path / "other"), workers=2)
    prepare(other, silent)
    assert contents(other.output) == contents(twice.output)


def test_weights_belong_to_files_in_whatever_order(config, documents, tmp_path):
    a, b = (
        str(write_as(tmp_path, f"{name}.txt", texts))
        for name, texts in zip("ab", documents[:2], strict=True)
    )
    first = change(config, input=(a, b), weights=(1.0, 3.0))
    manifest = prepare(first, silent)
    lines = []
    prepare(change(first, input=(b, a), weights=(3.0, 1.0)), lines.append)
    assert lines == [f"{first.output} is already complete."]
    with pytest.raises(FileExistsError, match="other sources"):
        prepare(change(first, input=(b, a)), silent)
    # A dataset of an earlier version has only the weights of the entries.
    old = [{k: s[k] for k in s if k != "weight"} for s in manifest["sources"]]
    write_manifest(manifest | {"sources": old}, epath.Path(first.output))
    prepare(first, lines.append)
    assert lines[1:] == lines[:1]
    with pytest.raises(FileExistsError, match="weights=.* before, .* now"):
        prepare(change(first, input=(b, a), weights=(3.0, 1.0)), silent)


def test_a_language_is_refused_at_the_start(config):
    with pytest.raises(ValueError, match="language='jp' is not an ISO 639-1 code"):
        prepare(change(config, language="jp", input=("nowhere",)), silent)


def test_equal_file_names_have_draws_of_their_own(config, documents, tmp_path):
    """A corpus in folders: the split and the weights do not depend on its root."""
    texts = [text for part in documents for text in part]
    manifests = []
    for root in ("here", "over/there"):
        for number, pair in enumerate(zip(texts[::2], texts[1::2], strict=True)):
            folder = tmp_path / root / f"book{number}"
            folder.mkdir(parents=True)
            write_as(folder, "text.txt", pair)
        inputs = (f"{tmp_path / root}/book[1-3]*", f"{tmp_path / root}/**/text.txt")
        output = str(tmp_path / f"data{len(manifests)}")
        given = change(config, input=inputs, weights=(1.0, 0.5), output=output)
        manifests.append(prepare(given, silent))
    first, second = manifests
    assert shards(tmp_path / "data0") == shards(tmp_path / "data1")
    assert first["sources"] == second["sources"]
    assert first["sources"][0]["name"] == "book0/text.txt"
    held = first["counts"]["validation"]["documents"]
    assert 4 <= held <= 25  # a tenth of 120: 3.3 standard deviations
    in_first = sum(2 for number in range(60) if str(number)[0] in "123")
    used = first["counts"]["train"]["documents"]
    assert in_first * 0.8 < used < 0.7 * 120  # half of the others
    # A finished dataset of an earlier version has base names, and is left.
    names = [source | {"name": "text.txt"} for source in second["sources"]]
    write_manifest(second | {"sources": names}, epath.Path(output))
    lines = []
    prepare(given, lines.append)
    assert lines == [f"{output} is already complete."]


@pytest.mark.parametrize(
    "name",
    [
        "a.txt",
        *(pytest.param(f"a.{e}", marks=pytest.mark.slow) for e in ("txt.gz", "jsonl")),
    ],
)
def test_a_document_of_many_megabytes_is_divided_and_counted(
    config, documents, tmp_path, name
):
    text = "\n".join(documents[0])
    path = write_as(tmp_path, name, [text * (5_000_000 // len(text) + 1)])
    given = change(config, input=(str(path),), sentences="lines")
    manifest = prepare_dataset(given, silent)
    assert manifest["dropped"]["documents of more than 4 MiB were divided"] == 1
    assert 20 <= manifest["sources"][0]["documents"] <= 30
    assert manifest["counts"]["validation"]["documents"] >= 2
