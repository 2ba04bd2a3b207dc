"""What --input names, and text in pieces."""

import functools
import gzip
import itertools
import os
import shutil
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data import sources
from bert_jax.data.installed_documentation import make_library, write_corpus
from bert_jax.data.sources import Source, find_sources, read_pieces


def zstd(content):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


PACK = {"gz": gzip.compress, "zst": zstd}


def make(folder, *names):
    for name in names:
        (folder / name).write_text(name)
    return str(folder)


def test_the_kind_goes_by_the_name(tmp_path):
    names = "a.txt b c.GZ d.txt.zst e.jsonl f.jsonl.gz g.JSONL.zst h.parquet i.ndjson"
    make(tmp_path, *names.split(), "j.json.gz", "k.CSV", "l.tsv.zst")
    found = find_sources([f"{tmp_path}/*"])
    assert [(s.name, s.kind, s.in_place) for s in found] == [
        ("a.txt", "text", True),
        ("b", "text", True),
        ("c.GZ", "text", False),
        ("d.txt.zst", "text", False),
        ("e.jsonl", "jsonl", False),
        ("f.jsonl.gz", "jsonl", False),
        ("g.JSONL.zst", "jsonl", False),
        ("h.parquet", "parquet", False),
        ("i.ndjson", "jsonl", False),
        ("j.json.gz", "json", False),
        ("k.CSV", "table", False),
        ("l.tsv.zst", "table", False),
    ]
    assert [s.holds_records for s in found] == [s.kind != "text" for s in found]
    tfds, documentation = find_sources(["tfds:lm1b", "installed-documentation"])[::-1]
    assert (tfds.kind, tfds.name, tfds.holds_records) == ("tfds", "tfds:lm1b", True)
    assert (documentation.kind, documentation.in_place) == ("documentation", False)


def test_sources_are_sorted_and_belong_to_the_first_input_that_names_them(
    tmp_path, monkeypatch
):
    make(tmp_path, "b.txt", "a.txt", "[c].txt", "d.txt")
    monkeypatch.chdir(tmp_path)
    inputs = ["tfds:x", "b.txt", f"{tmp_path}/./*.txt", "[c].txt", "tfds:x", "./b.txt"]
    found = [(s.name, s.input) for s in find_sources(inputs)]
    assert sorted(found) == [
        ("[c].txt", 2),
        ("a.txt", 2),
        ("b.txt", 1),
        ("d.txt", 2),
        ("tfds:x", 0),
    ]
    order = [s.path for s in find_sources([f"{tmp_path}/d.txt", f"{tmp_path}/*.txt"])]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ("https://host/a.txt", "'https://host/a.txt' is an address; download it first"),
        ("gs://bucket/*.txt", "is an address"),
        ("none*.txt", r"'none\*.txt' matches no file; give text files"),
        ("../empty", "input '../empty' matches no file; give text files, a dir"),
        ("a.txt.bz2", "'a.txt.bz2' is of an unsupported kind; unpack it"),
        ("A.TAR.GZ", "'A.TAR.GZ' is of an unsupported kind"),
        ("a.parquet.gz", "is of an unsupported kind"),
        ("a.HTML.gz", "unsupported kind; extract its text, and give text, .jsonl"),
        ("a.docx", "is of an unsupported kind; extract"),
    ],
)
def test_what_is_not_read_is_refused(tmp_path, monkeypatch, entry, error):
    folder = tree(tmp_path, "no/a.txt.bz2", "no/A.TAR.GZ", "no/a.parquet.gz")
    tree(tmp_path, "no/a.HTML.gz", "no/a.docx")
    (folder / "empty").mkdir()
    monkeypatch.chdir(folder / "no")
    with pytest.raises((ValueError, FileNotFoundError), match=error):
        find_sources([entry])


def tree(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_files_of_many_kinds_that_are_not_read_are_told_in_a_short_line(
    tmp_path, caplog
):
    tree(tmp_path, "a.txt", "x.py", "y.py", *(f"chapter.{i:04}" for i in range(99)))
    with caplog.at_level("INFO"):
        [source] = find_sources([str(tmp_path)])
    assert source.name == "a.txt" and "1 .0014, 2 .py and 84 of 84 other" in caplog.text


def test_a_directory_is_read_with_all_below_it(tmp_path, caplog):
    kept = "a.txt b.TXT.gz c/d/e.jsonl c/wiki_00 f.parquet".split()
    skipped = "README README.txt c/m.csv c/x.py c/y.py .git/z.txt c/.h.txt v/vocab.txt"
    tree(tmp_path, *kept, *skipped.split(), "v/tokenizer_config.json")
    with caplog.at_level("INFO"):
        found = find_sources([str(tmp_path)])
    assert [os.path.relpath(s.path, tmp_path) for s in found] == kept
    said = "not read are 1 .csv, 2 .py, 1 README, 1 README.txt, 2 hidden, 1 tokenizers"
    assert said in caplog.text
    names = ["m.csv", "x.jsonl"]  # without texts, tables are records
    assert [s.name for s in find_sources([str(tree(tmp_path / "t", *names))])] == names
    (tmp_path / "t" / "x.jsonl").unlink()
    (tmp_path / "t" / "m.csv").unlink()
    assert find_sources([f"{tmp_path}/*"]) == sorted(
        [*find_sources([f"{tmp_path}/README*"]), *found], key=lambda s: s.path
    )


def test_files_of_data_tools_do_not_decide_how_a_directory_is_read(tmp_path, caplog):
    caplog.set_level("INFO")
    tree(tmp_path, "spark/_SUCCESS", "spark/part-0.json", "spark/part-1.json")
    (tmp_path / "spark" / "empty").touch()
    found = find_sources([str(tmp_path / "spark")])
    assert [s.name for s in found] == ["empty", "part-0.json", "part-1.json"]
    tree(tmp_path, "hub/dataset_infos.json", "hub/data/train.jsonl")
    (source,) = find_sources([str(tmp_path / "hub")])
    assert source.name == "train.jsonl"
    assert "not read are 1 hidden;" in caplog.text
    assert "not read are 1 .json;" in caplog.text


@pytest.mark.parametrize("pattern", ["**/*.txt", "**", "*/**/*.txt", "*"])
def test_patterns_reach_every_level(tmp_path, pattern):
    names = [f"{'x/' * depth}{depth}.txt" for depth in range(1, 5)]
    tree(tmp_path, *names)
    found = find_sources([f"{tmp_path}/{pattern}"])
    assert {s.name for s in found} == {os.path.basename(name) for name in names}


@pytest.mark.parametrize("entry", ["", "/**/*.txt", "/*/*.txt"])
def test_a_directory_that_cannot_be_read_is_said(entry, tmp_path, monkeypatch, caplog):
    """Such as lost+found. Root may read all; here the system says that it may not."""
    locked, other = tmp_path / "text" / "locked", tmp_path / "text" / "other"
    for folder in (locked, other):
        folder.mkdir(parents=True)
        make(folder, "a.txt")
    access, scandir = os.access, os.scandir

    def refuse(path):
        if os.fspath(path).rstrip("/") == str(locked):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(
        os, "access", lambda path, mode: str(locked) not in path and access(path, mode)
    )
    (source,) = find_sources([f"{tmp_path}/text{entry}"])
    assert source.path == str(other / "a.txt")
    assert "not read are 1 directories that cannot be read" in caplog.text
    tree(other, *(f"b{i % 2}.{i // 2:03}" for i in range(99)))
    find_sources([f"{tmp_path}/text"])
    assert "1 directories that cannot be read and" in caplog.text, "among many kinds"


def test_the_order_does_not_depend_on_how_paths_are_spelled(tmp_path, monkeypatch):
    make(tmp_path, "a.txt", "b.txt")
    monkeypatch.chdir(tmp_path)
    for spelled in ("b.txt", "./b.txt", ".//b.txt"):
        found = find_sources([spelled, "a.txt"])
        assert [source.name for source in found] == ["a.txt", "b.txt"]


def test_an_input_that_adds_no_file_is_said(tmp_path, caplog):
    """It has no weight of its own."""
    make(tmp_path, "a.txt", "b.txt")
    find_sources([str(tmp_path), f"{tmp_path}/b.txt"])
    assert "b.txt: what it names is in an earlier --input; it is read once" in (
        caplog.text
    )
    make(tmp_path, "c.txt")
    find_sources([f"{tmp_path}/[ab].txt", f"{tmp_path}/[bc].txt"])
    assert "[bc].txt: 1 of 2 files of what it names is in an earlier" in caplog.text


def test_a_file_is_read_once_whatever_links_to_it(tmp_path):
    tree(tmp_path, "text/a.txt", "elsewhere/b.txt")
    (tmp_path / "text" / "above").symlink_to(tmp_path / "text")
    (tmp_path / "text" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "text" / "0.txt").symlink_to(tmp_path / "elsewhere" / "b.txt")
    for entry in ("text", "text/**", "text/**/*.txt", "text/**/[ab].txt"):
        found = find_sources([str(tmp_path / entry)])
        assert [s.path.removeprefix(f"{tmp_path}/text/") for s in found] in (
            ["0.txt", "a.txt"],
            ["a.txt", "more/b.txt"],
        )


def test_what_a_command_wrote_is_not_its_input(tmp_path):
    tree(tmp_path, "a.txt", "out/unfinished/text/0.txt")
    (source,) = find_sources([f"{tmp_path}/**"], str(tmp_path / "out"))
    assert source.name == "a.txt"


def test_datasets_below_the_input_are_not_read(tmp_path, caplog):
    caplog.set_level("INFO")
    tree(tmp_path, "a.txt", "done/manifest.json", "done/train-00000-of-00001.npy")
    tree(tmp_path, "cut/unfinished/text/00000.txt", "cut/unfinished/lock")
    tree(tmp_path, "done/tokenizer/vocab.txt", "done/tokenizer/tokenizer_config.json")
    tree(tmp_path, "beside/vocab.txt", "beside/tokenizer_config.json", "beside/b.txt")
    texts = [source.name for source in find_sources([f"{tmp_path}/beside/*.txt"])]
    assert texts == ["b.txt"]
    shutil.rmtree(tmp_path / "beside")
    pattern = "/**/*.txt", "1 copies of text in unfinished datasets, 1 files of tok"
    for entry, said in (("", "2 datasets"), pattern):
        (source,) = find_sources([f"{tmp_path}{entry}"])
        assert source.name == "a.txt" and f"not read are {said}" in caplog.text


def test_a_manifest_beside_other_arrays_is_no_dataset(tmp_path):
    tree(tmp_path, "x/a.txt", "y/b.txt", "y/manifest.json", "y/vectors.npy")
    assert [one.name for one in find_sources([str(tmp_path)])] == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        ("b/x.txt c/y.txt", "x.txt y.txt"),
        ("b/x.txt c/x.txt c/y.txt", "b/x.txt c/x.txt y.txt"),
        ("a/1/x.txt a/2/x.txt z/2/x.txt", "1/x.txt a/2/x.txt z/2/x.txt"),
        ("x.txt a/x.txt a/a/x.txt", "x.txt a/x.txt a/a/x.txt"),
        ("a/x.txt a/x.txt.gz a/x.jsonl", "x.txt x.txt.gz x.jsonl"),
    ],
)
def test_equal_names_are_told_apart_wherever_the_corpus_lies(tmp_path, paths, names):
    expected = dict(zip(paths.split(), names.split(), strict=True))
    for root in ("one", "two/three"):
        folder = tree(tmp_path / root, *expected)
        for entry in (f"{folder}/**", os.path.relpath(folder)):
            found = find_sources([entry])
            assert {os.path.relpath(s.path, folder): s.name for s in found} == expected


def source_of(path):
    (found,) = find_sources([str(path)])
    return found


@given(st.text("ab\r\né", max_size=80), st.integers(1, 9))
def test_pieces_are_the_text_and_end_as_lines_do(tmp_path_factory, text, size):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(text.encode())
    pieces = list(read_pieces(source_of(path), strict=True, piece_bytes=size))
    assert b"".join(pieces) == text.encode()
    for piece, after in itertools.pairwise(pieces):
        assert piece.endswith(b"\n") or len(piece) >= 2 * size
        assert not (piece.endswith(b"\r") and after.startswith(b"\n"))


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_text_is_read_through_all_its_members(tmp_path, suffix):
    pack, path = PACK[suffix], tmp_path / f"a.txt.{suffix}"
    content = os.urandom(200_000).hex().encode()
    path.write_bytes(pack(content[:1000]) + pack(b"") + pack(content[1000:]))
    assert b"".join(read_pieces(source_of(path), strict=False)) == content


@pytest.mark.parametrize("suffix", PACK)
def test_damaged_files_are_named(tmp_path, suffix):
    path, whole = tmp_path / f"a.{suffix}", PACK[suffix](os.urandom(50_000))
    cuts = {
        whole[:-1]: "Truncated compressed stream",
        whole[:30_000]: "Truncated compressed stream",
        b"": "it is empty",
        b"plain text" * 9: "(incorrect header|Unknown frame)",
        whole + b"more": "",
    }
    for content, error in cuts.items():
        path.write_bytes(content)
        match = rf"a\.{suffix} is damaged or not \w+ \(.*{error}.*\); get it again"
        with pytest.raises(ValueError, match=match) as caught:
            list(read_pieces(source_of(path), strict=False))
        assert "\n" not in str(caught.value)


def test_a_file_that_became_a_directory_is_named(tmp_path):
    for name in ("a.txt", "a.gz"):
        source = source_of(make(tmp_path, name) + "/" + name)
        (tmp_path / name).unlink()
        (tmp_path / name).mkdir()
        with pytest.raises(FileNotFoundError, match=rf"{name} is not a file but a dir"):
            list(read_pieces(source, strict=False))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"caf\xe9 au lait\n", "byte 0xe9 at 3 is not UTF-8; convert"),
        ("né\n".encode() * 5 + b"\xc3\n\xa9\n", "byte 0xc3 at 20 "),
        (b"ab\n\n" + "é".encode()[:1], "byte 0xc3 at 4 "),
        (b"\xed\xa0\x80", "byte 0xed at 0 "),  # a surrogate
    ],
)
@pytest.mark.parametrize("size", [1, 2, 1 << 20])
def test_strict_tells_where_it_is_not_utf8(tmp_path, content, error, size):
    for name, packed in (("a.txt", content), ("a.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(packed)
        source = source_of(tmp_path / name)
        assert b"".join(read_pieces(source, False, size)) == content
        with pytest.raises(ValueError, match=f"{name}: {error}"):
            list(read_pieces(source, True, size))


def test_the_documentation_of_what_is_installed_is_text(tmp_path, monkeypatch):
    root = Path(pytest.__file__).parent
    small = make_library("pytest", "1", root, ["__init__.py", "_code.py"])
    prose = "This sentence is here so that there is some prose for the corpus to hold."
    (tmp_path / "m.py").write_text(f'"""{prose}\n\n{prose[5:]}"""')
    other = make_library("other", "1", tmp_path, ["m.py"])
    write = functools.partial(write_corpus, libraries=[small, other], workers=1)
    monkeypatch.setattr(sources, "write_corpus", write)
    source = Source(
        "installed-documentation", "installed-documentation", "documentation"
    )
    first, *_ = pieces = list(read_pieces(source, strict=True))
    assert prose.encode() in first
    assert all(piece.endswith(b"\n\n") for piece in pieces)


def test_a_link_to_nothing_is_named_with_what_it_leads_to(tmp_path):
    (tmp_path / "a.txt").write_text("The judge reads.\n")
    (tmp_path / "b.txt").symlink_to("gone.txt")
    with pytest.raises(FileNotFoundError, match="b.txt is a link to gone.txt, which"):
        find_sources([str(tmp_path)])
