import hashlib
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data import documents
from bert_jax.data.documents import index_documents, read_text, split_sentences


def texts(path):
    """The text of each document of a file, by way of the index."""
    index, _ = index_documents([str(path)])
    spans = zip(index.offset.tolist(), index.length.tolist(), strict=True)
    return [read_text(str(path), *span)[0] for span in spans]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n \n\t\n", []),
        (b"   ", []),
        (b"a", ["a"]),
        (b"a\nb\n\nc\n", ["a\nb\n", "c\n"]),
        (b"\n\na\n\n\n \n\nb", ["a\n", "b"]),
        (b"a\r\nb\r\n\r\nc\r\n", ["a\r\nb\r\n", "c\r\n"]),
        (b"a\n\xc2\xa0\nb\n\xe3\x80\x80 \nc", ["a\n", "b\n", "c"]),
        (b"\xef\xbb\xbfa\n\nb", ["a\n", "b"]),
        (b"\xef\xbb\xbf\n\nb", ["b"]),
        (b"a\n\n  ", ["a\n"]),
    ],
)
def test_blank_lines_part_documents(tmp_path, content, expected):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    assert texts(path) == expected


@given(st.text("ab \r\n", max_size=60), st.integers(30, 70))
def test_the_index_does_not_depend_on_the_pieces_read(tmp_path_factory, text, size):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(text.encode())
    blank = re.compile(r"\n(?:[ \r]*\n)+")
    expected = [p.strip("\n") for p in blank.split("\n" + text) if p.strip(" \r\n")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            documents, "_PIECE", size
        )  # no line of the text is longer than two
        assert [found.strip("\n") for found in texts(path)] == expected


def test_the_index_spans_files_and_describes_them(tmp_path):
    contents = [b"a\n\nb\n", b"", b"c"]
    paths = [tmp_path / f"{n}.txt" for n in range(3)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    index, sources = index_documents([str(path) for path in paths])
    assert index.file.tolist() == [0, 0, 2]
    assert index.offset.tolist() == [0, 3, 0]
    assert index.length.tolist() == [2, 2, 1]
    assert index.take(np.array([2, 0])).file.tolist() == [2, 0]
    assert sources == [
        {
            "name": path.name,
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        for path, content in zip(paths, contents, strict=True)
    ]


def test_bytes_that_are_not_utf8_are_replaced_and_counted(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"caf\xe9 \xef\xbf\xbd \xff!")
    assert read_text(str(path), 0, 11) == ("caf\ufffd \ufffd \ufffd!", 2)


def test_prose_is_cut_into_sentences_within_each_line():
    text = "Mr. Smith came in. He sat down!\r\n\r\nWho was he?  No one knew"
    assert split_sentences(text, "split") == [
        "Mr. Smith came in.",
        "He sat down!",
        "Who was he?",
        "No one knew",
    ]


def test_lines_are_sentences_whatever_ends_them():
    text = " One. Two. \rthree\r\n \r\nfour\n"
    assert split_sentences(text, "lines") == ["One. Two.", "three", "four"]
