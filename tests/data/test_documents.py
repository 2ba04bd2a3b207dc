"""Where documents lie, and their sentences."""

import itertools
import re
import time

import numpy as np
import pytest
import sentencex
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.documents import (
    Documents,
    divide_documents,
    find_documents,
    read_text,
    require_language,
    split_sentences,
)


def texts(*pieces):
    """The text of each document of a text that comes in pieces."""
    whole = b"".join(pieces)
    return [whole[start:end].decode() for start, end in find_documents(pieces)]


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
        (b"a\rb\r\rc\r", ["a\rb\r", "c\r"]),  # as an old Mac ends lines
        (b"\r\ra\r \rb\r\n\rc\n\r\nd", ["a\r", "b\r\n", "c\n", "d"]),
        (b"a\n\xc2\xa0\nb\n\xe3\x80\x80 \nc", ["a\n", "b\n", "c"]),
        (b"\xef\xbb\xbfa\n\nb", ["a\n", "b"]),
        (b"\xef\xbb\xbf\n\nb", ["b"]),
        (b"a\n\n  ", ["a\n"]),
        (b"\0\n\n\0", ["\0\n", "\0"]),
        ("a\u2028\u2028b".encode(), ["a\u2028\u2028b"]),  # no end of a line
    ],
)
def test_blank_lines_part_documents(content, expected):
    assert texts(content) == expected


@settings(max_examples=300, deadline=None)
@given(st.text("ab \r\n\u00a0", max_size=60), st.lists(st.integers(0, 60)))
def test_documents_do_not_depend_on_the_pieces(text, cuts):
    lines = re.split("\r\n|\r|\n", text)
    blank = re.compile(r"\n(?:[ \u00a0]*\n)+")
    found = blank.split("\n" + "\n".join(lines))
    # Blanks before a first line may be lost where it is cut among them.
    expected = [part.strip() for part in found if part.strip()]
    places = {place for place in cuts if text[place - 1 : place + 1] != "\r\n"}
    bounds = [0, *sorted(place for place in places if 0 < place < len(text)), len(text)]
    pieces = [text[a:b].encode() for a, b in itertools.pairwise(bounds)]
    found = [re.sub("\r\n|\r", "\n", part) for part in texts(*filter(None, pieces))]
    assert [part.strip() for part in found] == expected


def test_a_line_that_is_cut_goes_on():
    assert texts(b"aa", b"\nb\n") == ["aa\nb\n"]
    assert texts(b"aa", b"\n\nb\n") == ["aa\n", "b\n"]
    assert texts(b"aa\n", b"\nb\n") == ["aa\n", "b\n"]


def test_blank_text_of_megabytes_takes_no_time():
    start = time.monotonic()
    for blank in (b" ", b"\n", b" \r\n", "\u00a0".encode(), b"\r"):
        assert texts(blank * (5_000_000 // len(blank))) == []
    assert time.monotonic() - start < 20  # half a second on a quiet machine


def test_documents_are_taken_by_number():
    index = Documents(np.array([0, 0, 2]), np.array([0, 3, 0]), np.array([2, 2, 1]))
    assert len(index) == 3
    assert index.take(np.array([2, 0])).file.tolist() == [2, 0]


def test_bytes_that_are_not_utf8_are_replaced_and_counted(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"caf\xe9 \xef\xbf\xbd \xff!")
    assert read_text(str(path), 0, 11) == ("caf\ufffd \ufffd \ufffd!", 3)


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


def test_sentences_end_as_the_language_has_it():
    text = "Er kam am 3. Januar. Dann ging er."
    german = ["Er kam am 3. Januar.", "Dann ging er."]
    assert split_sentences(text, "split", "de") == german
    assert len(split_sentences(text, "split", "en")) == 3


def test_a_language_that_is_none_is_refused():
    for code in ("en", "de", "ja", "zh"):
        require_language(code)
    for code in ("", "EN", "xx", "jp", "english", "en-US"):
        with pytest.raises(ValueError, match=f"language='{code}' is not an ISO 639-1"):
            require_language(code)


SENTENCES = st.sampled_from(["It was so. ", "He (or she?) went! ", "“Why?” ", "No "])


@given(st.lists(SENTENCES, max_size=200), st.integers(60, 200))
def test_long_lines_are_cut_into_the_same_sentences(parts, longest):
    line = "".join(parts)
    found = split_sentences(line, "split", max_characters=longest)
    whole = [s.strip() for s in sentencex.segment("en", line) if s.strip()]
    if max(map(len, whole), default=0) < longest // 2:
        assert found == whole
    assert "".join(found).replace(" ", "") == line.replace(" ", "")
    assert all(len(sentence) <= longest for sentence in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "中文。" * 300_000,
        "word " * 200_000,
        "“A. " * 250_000,
        "a" * 1_000_000,
        "e" + "\u0301" * 1_000_000,
        "\u00a0" * 500_000,
        "Mr. " * 250_000,
    ],
    ids="chinese words quotation token marks spaces abbreviation".split(),
)
def test_long_lines_take_no_more_time_than_many_short_ones(text):
    start = time.monotonic()
    sentences = split_sentences(text, "split")
    assert time.monotonic() - start < 20  # 2 s at most; an hour if left to sentencex
    assert "".join("".join(sentences).split()) == "".join(text.split())


@pytest.mark.parametrize("space", "\u00a0 \u2028 \u3000 \x85 \u202f".split(" "))
def test_a_space_on_which_sentencex_panics(space, capfd):
    assert split_sentences(f"See B{space}. Then go.", "split")[-1] == "Then go."
    assert capfd.readouterr().err == ""


def test_a_panic_leaves_the_line_whole(monkeypatch):
    class PanicException(BaseException):
        pass

    def panic(language, text):
        raise PanicException if text.startswith("B") else KeyboardInterrupt

    monkeypatch.setattr(sentencex, "segment", panic)
    assert split_sentences("B. C.", "split") == ["B. C."]
    with pytest.raises(KeyboardInterrupt):
        split_sentences("A.", "split")


@pytest.mark.parametrize(
    ("unit", "end"),
    [
        ("The judge reads. ", b". "),
        ("the judge reads\n", b"\n"),
        ("the judge\r\n", b"\r\n"),
        ("法官读信。", "。".encode()),
        ("the ", b" "),
        ("法", b"\xe6\xb3\x95"),
        ("💩", "💩".encode()),
    ],
)
def test_a_long_document_is_divided_where_its_text_allows(tmp_path, unit, end):
    path = tmp_path / "a.txt"
    content = (unit * 5000).encode()
    path.write_bytes(b"short\n\n" + content)
    spans = [(0, 6), (7, 7 + len(content))]
    first, *parts = divide_documents(str(path), spans, 4000, 1000)
    assert first == spans[0]
    assert [parts[0][0], parts[-1][1]] == list(spans[1])
    assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))
    texts = [path.read_bytes()[start:stop] for start, stop in parts]
    assert all(text.decode().strip() for text in texts)
    assert all(text.endswith(end) for text in texts)
    assert 500 <= min(map(len, texts)) <= max(map(len, texts)) <= 1000


def test_a_document_that_is_not_too_long_stays_whole(tmp_path):
    (tmp_path / "a.txt").write_text("a b\n" * 1000)
    spans = [(0, 4000)]
    assert list(divide_documents(str(tmp_path / "a.txt"), spans, 4000, 10)) == spans
