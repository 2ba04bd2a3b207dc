"""Text in other encodings, and files that hold no text, by `vocab` and `prepare`."""

import codecs
import gzip
import io
import json
import zipfile

import pytest

from bert_jax.cli.main import main
from bert_jax.config import VocabularyConfig
from bert_jax.data.records import open_dataset
from bert_jax.data.sources import find_sources, read_pieces
from bert_jax.data.vocabulary import read_lines
from bert_jax.storage.encodings import encoding_of, require_prose

MARKS = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}
RUSSIAN = "Судья читает письмо, и пекарь пишет.\n" * 20
TEXTS = {
    "English": "The judge reads a letter.\n" * 20,
    "Russian": RUSSIAN,
    "Chinese": "法官读信,面包师写字。\n" * 20,
    "Japanese": "さいばんかんは てがみを よむ。\n" * 20,
    "Thai": "ผู้พิพากษาอ่านจดหมาย\n" * 20,
    "Arabic": "القاضي يقرأ الرسالة\n" * 20,
    "Hindi": "न्यायाधीश पत्र पढ़ता है।\n" * 20,
}


def packed_zip():
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr("word/document.xml", "<w:t>The judge</w:t>")
    return file.getvalue()


@pytest.mark.parametrize(
    "name", ["a.txt", "a.txt.gz", "a.jsonl", "a.json", "a.jsonl.gz"]
)
@pytest.mark.parametrize("encoding", MARKS)
def test_a_byte_order_mark_is_believed(tmp_path, encoding, name):
    texts = ["Müller – 😀", *TEXTS.values()]
    content = "\r\n\r\n".join(text.replace("\n", "\r\n") for text in texts)
    if "json" in name:
        content = "".join(
            json.dumps({"text": t}, ensure_ascii=False) + "\r\n" for t in texts
        )
    raw = MARKS[encoding] + content.encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    config = VocabularyConfig(input=(str(tmp_path / name),), output="")
    found = list(read_lines(find_sources(config.input), config, 64))
    assert found == [line for text in texts for line in text.split("\n") if line]


@pytest.mark.parametrize("encoding", MARKS)
def test_marked_text_gives_the_same_dataset(tmp_path, tokenizer_directory, encoding):
    text = "".join(f"The judge reads {n}. The clerk reads.\n\n" for n in range(30))
    found = []
    for mark, given in ((b"", "utf-8"), (MARKS[encoding], encoding)):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        (folder / "a.txt").write_bytes(mark + text.encode(given))
        found.append(prepare(folder / "a.txt", tokenizer_directory, folder / "out"))
        assert not (folder / "out" / "unfinished").exists()
    assert found[0] == found[1]


def prepare(text, tokenizer, output, *options):
    arguments = ["--input", text, "--tokenizer", tokenizer, "--output", output]
    arguments += ["--sequence-length", "32", "--workers", "1", *options]
    assert main(["prepare", *map(str, arguments)]) == 0
    shards = sorted(output.glob("*.npy"))
    return open_dataset(output).manifest["dropped"], [s.read_bytes() for s in shards]


WESTERN = "Der Müller aß an der Straße.\n" * 9
REFUSED = {
    "a.txt: byte 0xfc at 35 is not UTF-8; convert the file, for example by `iconv -f "
    "WINDOWS-1252 -t UTF-8` if it is WINDOWS-1252. It is in line 2; with --no-strict": (
        "a.txt",
        b"Plain text in the first line.\n" + WESTERN.encode("latin-1"),
    ),
    "a.txt.gz: byte 0xd1 at 0 is not UTF-8; convert the file by `iconv -f ENCODING": (
        "a.txt.gz",
        gzip.compress(RUSSIAN.encode("windows-1251")),
    ),
    "a.jsonl:1: 'text' is not UTF-8": ("a.jsonl", b'{"text": "Stra\xdfe"}'),
    "a.csv, line 2: byte 0xdf at 9 is not UTF-8": ("a.csv", b"text\nStra\xdfe\n"),
    "byte 0x2e at 4 is not UTF-16-LE; its first bytes say so": (
        "a.txt",
        codecs.BOM_UTF16_LE + "a".encode("utf-16-le") + b".",
    ),
    "a.txt is gzip data, whatever its name says; give it": (
        "a.txt",
        gzip.compress(b"The judge reads."),
    ),
    "a.txt is PDF": ("a.txt", b"%PDF-1.4\n1 0 obj"),
    "a.txt is a zip archive, as are .docx": ("a.txt", packed_zip()),
    "a.jsonl is a zip archive": ("a.jsonl", packed_zip()),
    "a.csv is an image": ("a.csv", b"\x89PNG\r\n\x1a\n" + bytes(30)),
    "a.txt is binary data": ("a.txt", bytes(range(32)) * 9 + b"text"),
    "a.txt is HTML, XML or WARC": ("a.txt", b"\n<!DOCTYPE html><p>The judge"),
    "b.txt is HTML, XML or WARC": ("b.txt", codecs.BOM_UTF8 + b"<?xml version='1.0'?>"),
    "c.txt is HTML, XML or WARC": ("c.txt", b"<!-- saved -->\n<!-- a -->\n<html><p>"),
    "d.txt is HTML, XML or WARC": ("d.txt", b"<!DOCTYPE mteval SYSTEM 'x'>\n<doc>"),
    "part is HTML, XML or WARC": ("part", b'<wiki\n xml:lang="en" xmlns="u">\n<page>'),
    "b.txt holds JSON objects": ("b.txt", codecs.BOM_UTF8 + b'{"text": "a b"}\n' * 3),
    "a.txt is PostScript": ("a.txt", b"%!PS-Adobe-3.0\n"),
    "a.txt is in ISO-2022-JP; convert it by `iconv -f ISO-2022-JP -t UTF-8`": (
        "a.txt",
        TEXTS["Japanese"].encode("iso-2022-jp"),
    ),
    "a.txt is in ISO-2022-KR": ("a.txt", "읽는다".encode("iso-2022-kr")),
    "a.txt: byte 0xd0 at 132 is not UTF-8; the characters around it are UTF-8: correct "
    "it, or drop such bytes by `iconv -c -f UTF-8 -t UTF-8`. It is in line 3": (
        "a.txt",
        RUSSIAN.encode()[:133] + b"\n" + RUSSIAN.encode(),
    ),
    "a.csv, line 2: byte 0xd1 at 11 is not UTF-8; the characters around it": (
        "a.csv",
        b"text\n" + RUSSIAN.encode()[:7] + RUSSIAN.encode(),
    ),
    "a.txt holds JSON objects; give it a name in .jsonl": (
        "a.txt",
        b'{"url": "x", "text": "The judge reads."}\n' * 3,
    ),
    "part holds JSON objects; give it a name in .jsonl": (
        "part",
        b'{"url": "x", "text": "%s"}\n' % (b"The judge reads. " * 5000),
    ),
    "a.txt is JSON, not plain text; give it a name in .json": (
        "a.txt",
        b'[\n {\n  "text": "The judge reads."\n }\n]',
    ),
    "a.ipynb is JSON": ("a.ipynb", b'{\n "cells": [\n  "The judge reads."\n ]\n}'),
    "wiki_00 is of WikiExtractor, not plain text; give what it writes with --json": (
        "wiki_00",
        b'<doc id="1" title="The judge">\nThe judge\n\nThe judge reads.\n</doc>\n',
    ),
    "a.json: object 2: there is no 'text', but body": (
        "a.json",
        b'[{"text": "a"},\n {"body": "b"}]',
    ),
    "a.json: not JSON (Expecting value, line 2, column": (
        "a.json",
        b'[{"text": "a"},\n]',
    ),
    "a.csv, line 2: there is no 'text', but id, body; choose by": (
        "a.csv",
        b"id,body\n1,The judge reads.\n",
    ),
    "a.xml' is of an unsupported kind; extract its text": ("a.xml", b"<a/>"),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_is_no_text_is_refused_in_one_line(tmp_path, refused, says):
    name, content = REFUSED[says]
    (tmp_path / name).write_bytes(content)
    arguments = ["--input", tmp_path / name, "--output", tmp_path / "out"]
    error = refused("vocab", *map(str, arguments))
    assert says in error
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("encoding", list(MARKS)[1:])
@pytest.mark.parametrize("language", TEXTS)
def test_wide_text_without_a_mark_is_recognised(tmp_path, language, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes(TEXTS[language].encode(encoding))
    iconv = "UTF-{1}{2}".format(*encoding.upper().split("-"))
    with pytest.raises(ValueError, match=f"a.txt.*; convert .*iconv -f {iconv} -t"):
        list(read_pieces(find_sources([str(path)])[0], strict=True))


@pytest.mark.parametrize("language", TEXTS)
def test_text_is_not_taken_for_something_else(language):
    for content in (TEXTS[language].encode(), TEXTS[language].encode()[1:], b"{}\nBZh"):
        assert encoding_of(content, "a.txt") == "utf-8"


@pytest.mark.parametrize(
    "text",
    [
        "<headcrab> The judge reads.\n<bodyguard> The clerk reads.\n",
        "<judge> What is an xmlns=?\n<clerk> A namespace.\n",
        "<!-- a -->\n# The judge\n\nA page begins so:\n\n<!-- b -->\n<html>\n",
        "<!-- a -->\n" * 64 + "The judge reads.\n",
        "Der Müller schreibt \x1b$B, das auf JIS umschaltet.\n",
        "GIF89a is a format of images.\nThe judge reads.\n",
        "RIFF is WAVE's container.\n",
        "SQLite format 3 is what the clerk writes.\n",
    ],
)
def test_text_that_shows_markup_is_prose(text):
    assert encoding_of(text.encode(), "a.txt") == "utf-8"
    require_prose(text.encode(), "a.txt")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '[{"text": "One.", "n": 1}, {"text": "Two."}, {"text": ""}]'),
        ("a.JSON", '[\n {"text": "One."},\n\n {"text":\n "Two."}, {"text": " "}\n]\n'),
        ("a.json", '{"text": "One."}\n\n{"text": "Two."}\n{"text": "\\n"}'),
        ("a.csv", 'id,text\n1,One.\n2,"Two."\n3,\n'),
        ("a.CSV", "text;id\nOne.;1\nTwo.;2\n;3\n"),
        ("a.tsv", "text\tid\nOne.\t1\nTwo.\t2\n\t3\n"),
    ],
)
def test_json_and_tables_are_records(tmp_path, name, content, tokenizer_directory):
    for packed in (False, True):
        path = tmp_path / (name + ".gz" if packed else name)
        path.write_bytes(
            gzip.compress(content.encode()) if packed else content.encode()
        )
        config = VocabularyConfig(input=(str(path),), output="")
        lines = list(read_lines(find_sources(config.input), config))
        assert lines == ["One.", "Two."]
    options = ("--pairs", "none", "--validation-fraction", "0")
    dropped, _ = prepare(path, tokenizer_directory, tmp_path / "out", *options)
    assert dropped["records without text"] == 1


def test_one_json_object_is_one_record(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"title": "x", "text": "One.\nTwo."}, indent=1))
    config = VocabularyConfig(input=(str(path),), output="")
    assert list(read_lines(find_sources(config.input), config)) == ["One.", "Two."]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_what_cannot_be_decoded_is_replaced_and_counted(
    tmp_path, tokenizer_directory, encoding
):
    bad = b"\xff" if encoding == "utf-8" else b"\x00\xd8"  # half of a pair
    text = [f"The judge reads {n}.\nThe clerk reads.\n\n" for n in range(9)]
    content = [part.encode(encoding) for part in text]
    path = tmp_path / "a.txt"
    path.write_bytes(MARKS[encoding] + content[0] + bad + b"".join(content[1:]))
    options = ("--no-strict", "--validation-fraction", "0")
    dropped, _ = prepare(path, tokenizer_directory, tmp_path / "out", *options)
    assert dropped["undecodable bytes"] == 1


def test_what_an_earlier_program_replaced_is_counted(
    tmp_path, tokenizer_directory, capsys
):
    path = tmp_path / "a.txt"
    path.write_text("The judge.\nThe cl\ufffdrk reads.\n\nThe judge reads.\nIt is.\n")
    options = ("--validation-fraction", "0")
    dropped, _ = prepare(path, tokenizer_directory, tmp_path / "out", *options)
    assert dropped["undecodable bytes"] == 1
    command = ["vocab", "--input", path, "--output", tmp_path / "v"]
    assert main([*map(str, command), "--vocab-size", "60"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("1 undecodable bytes (first: a.txt:2)") == 2
    assert "is U+FFFD, for what was not UTF-8; convert the original" in printed.err


def test_a_vocabulary_says_what_it_did_not_get(tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes(b"The judge reads.\n" + WESTERN.encode("latin-1"))
    (tmp_path / "b.csv").write_text('text\nThe clerk.\n""\n')
    command = ["vocab", "--input", str(tmp_path), str(tmp_path / "b.csv")]
    command += ["--output", str(tmp_path / "out"), "--vocab-size", "60"]
    assert main(command) == 2
    assert main([*command, "--no-strict"]) == 0
    printed = capsys.readouterr().out
    assert "27 undecodable bytes (first: a.txt:2)" in printed
    assert "1 records without text" in printed
