"""Tables of text: what is read of them, and what each refusal says."""

import csv
import gzip
import io
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.tables.json_lines import json_row
from bert_jax.tables.read import read_table, source_rows
from bert_jax.tables.rows import TableRow, missing_column_message, text_of


def rows(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(str(path))


def values(tmp_path, name, content):
    return [row.values for row in rows(tmp_path, name, content)]


def lines(found):
    return [int(row.where.rsplit(" ", 1)[1]) for row in found]


def test_fields_of_csv_may_be_quoted(tmp_path):
    found = rows(
        tmp_path,
        "a.csv",
        'text,label\n"one, two",a\n"She said ""no""",b\n"two\nlines",c\n\nlast,d\n',
    )
    assert [row.values for row in found] == [
        {"text": "one, two", "label": "a"},
        {"text": 'She said "no"', "label": "b"},
        {"text": "two\nlines", "label": "c"},
        {"text": "last", "label": "d"},
    ]
    assert lines(found) == [2, 3, 4, 7], "where each row begins"
    assert found[0].where == f"{tmp_path}/a.csv, line 2"


def test_quotes_are_characters_in_tsv(tmp_path):
    found = values(tmp_path, "a.tsv", 'text\tlabel\n"half a quote\t"a"\n""\t,\n')
    assert found == [
        {"text": '"half a quote', "label": '"a"'},
        {"text": '""', "label": ","},
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.rstrip(b"\n"),
        lambda text: text.replace(b"\n", b"\n\n"),
        lambda text: text.replace(b"\n", b"\n\xef\xbb\xbf"),
    ],
    ids=["BOM", "CRLF", "no last line break", "blank lines", "BOMs of joined files"],
)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"text,label\ngood,a\nbad,b\n"),
        ("a.tsv", b"text\tlabel\ngood\ta\nbad\tb\n"),
        ("a.jsonl", b'{"text":"good","label":"a"}\n{"text":"bad","label":"b"}\n'),
        ("a.json", b'{"text":"good","label":"a"}\n{"text":"bad","label":"b"}\n'),
    ],
)
def test_ways_to_write_the_same_table(change, name, content, tmp_path):
    assert values(tmp_path, name, change(content)) == [
        {"text": "good", "label": "a"},
        {"text": "bad", "label": "b"},
    ]


# Of no time: all processes must collect the same tests.
_ZIPPED = gzip.compress(b"text\n" * 9999, mtime=0)
ROWS = [{"text": "good, so", "label": "a"}, {"text": "bad; no", "label": "b"}]


@pytest.mark.parametrize(
    "name",
    "a.csv a.CSV.GZ a.csv.zst a.tsv a.Tsv.gz a.jsonl a.JSONL.gz a.ndjson "
    "a.Parquet".split(),
)
def test_a_table_is_the_same_in_every_form(name, tmp_path):
    form, _, packing = name.lower().removeprefix("a.").partition(".")
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / name)
        assert [row.values for row in read_table(str(tmp_path / name))] == ROWS
        return
    content = "".join(json.dumps(row) + "\n" for row in ROWS)
    if form == "csv":
        content = 'text,label\n"good, so",a\nbad; no,b\n'
    elif form == "tsv":
        content = "text\tlabel\ngood, so\ta\nbad; no\tb\n"
    packed = content.encode()
    if packing:
        codec = {"gz": "gzip", "zst": "zstd"}[packing]
        # Two members, as of files that were joined.
        parts = packed[:9], packed[9:]
        packed = b"".join(pa.compress(part, codec, asbytes=True) for part in parts)
        padded = packed + bytes(512)  # as tapes leave it, and `gzip -d` reads it
        assert values(tmp_path, name, padded if codec == "gzip" else packed) == ROWS
    assert values(tmp_path, name, packed) == ROWS


@pytest.mark.parametrize(
    ("name", "content", "separated"),
    [
        ("a.csv", 'text;label\n"good; so";a\nbad, no;b\n', "semicolons"),
        ("a.csv", '\ntext\tlabel\n"good; so"\ta\nbad, no\tb\n', "tabs"),
        ("a.csv", 'text|label\r\n"good; so"|a\r\nbad, no|b\r\n', "vertical bars"),
        ("a.tsv", 'text,label\n"good; so",a\n"bad, no",b\n', "commas"),
    ],
)
def test_the_header_says_how_columns_are_separated(
    name, content, separated, tmp_path, capsys
):
    expected = [{"text": "good; so", "label": "a"}, {"text": "bad, no", "label": "b"}]
    assert values(tmp_path, name, content) == expected
    [line] = capsys.readouterr().err.splitlines()
    assert f"{name}: its header is separated by {separated}, and so it is" in line
    assert "--delimiter" in line


@pytest.mark.parametrize(
    ("name", "content", "delimiter"),
    [
        ("a.csv", "sep=;\ntext;label\n1,5;a\n", ""),
        ("a.csv", "text^label\n1,5^a\n", "^"),
        ("a.csv", "text#label\n1,5#a\n", "#"),
        ("a.csv", 'text\tlabel\n"1,5"\ta\n', "tab"),
        ("a.csv", "text;label\n1,5;a\n", ";"),
    ],
)
def test_a_separator_that_is_named_is_not_told(
    name, content, delimiter, tmp_path, capsys
):
    (tmp_path / name).write_text(content)
    found = read_table(str(tmp_path / name), delimiter)
    assert [row.values for row in found] == [{"text": "1,5", "label": "a"}]
    assert capsys.readouterr().err == ""


def test_one_column_whose_quoted_name_has_a_separator(tmp_path, capsys):
    assert values(tmp_path, "a.csv", '"a;b"\n1;2\n') == [{"a;b": "1;2"}]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "content",
    ['"text"\t"label"\n"a"\t"b"\n', 'text\tlabel\n"a ""b"""\tc\n"d ""e"""\tf\n'],
)
def test_fields_in_quotes_are_told_in_tsv(content, tmp_path, capsys):
    found = values(tmp_path, "a.tsv", content)
    assert [*found[0].values()] == content.splitlines()[1].split("\t"), "as ever"
    [line] = capsys.readouterr().err.splitlines()
    assert f"a.tsv, line {len(found)} has fields in quotes, which" in line
    rows(tmp_path, "a.csv", content)
    assert "in quotes" not in capsys.readouterr().err


def test_missing_values_of_parquet(tmp_path):
    table = pa.table({"text": ["a", None], "label": [float("nan"), 1.0]})
    pq.write_table(table, tmp_path / "a.parquet")
    rows = read_table(str(tmp_path / "a.parquet"))
    assert rows[0].values == {"text": "a", "label": None}
    assert rows[1].values == {"text": None, "label": 1.0}
    assert rows[1].where == f"{tmp_path}/a.parquet, row 2"


def test_decimals_of_parquet_are_their_digits(tmp_path):
    values = [Decimal("1.50"), Decimal("1E+2"), None]
    column = pa.array(values, pa.decimal128(38, 2))
    pq.write_table(pa.table({"label": column}), tmp_path / "a.parquet")
    rows = read_table(str(tmp_path / "a.parquet"))
    assert [row.values["label"] for row in rows] == ["1.50", "100.00", None]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv.gz", _ZIPPED[:-9], "damaged or not gzip"),
        ("a.csv.gz", _ZIPPED[:-9] + bytes(99), "damaged or not gzip"),
        ("a.csv.gz", _ZIPPED[:40] + bytes(9), "damaged or not gzip"),
        ("a.jsonl.zst", b"{}", "a.jsonl.zst is damaged or not zstd"),
        ("a.tsv.gz", b"", r"a.tsv.gz is damaged or not gzip \(it is empty\)"),
        ("a.parquet", b"PAR1 and no more PAR1", "a.parquet is damaged or not Parquet"),
        ("a.parquet.gz", b"", "a.parquet.gz is of an unsupported kind; unpack it"),
        ("a.csv", _ZIPPED, "a.csv, line 1 is gzip data, .* in .gz"),
        ("a.csv", b"PK\x03\x04" + bytes(9), "a.csv, line 1 is a zip archive"),
        ("a.jsonl", b"PAR1\x15\x04\x15", "line 1 is Parquet, .* name in .parquet"),
        ("a.tsv", "text, or not\tb".encode("utf-16-le"), "iconv -f UTF-16LE -t"),
        ("a.csv.bz2", b"", "a.csv.bz2 ends in .bz2; it must be .csv, .tsv or .jsonl"),
    ],
)
def test_files_that_are_not_what_their_names_say(name, content, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        rows(tmp_path, name, content)


def test_a_json_array_is_a_table(tmp_path):
    (tmp_path / "a.json").write_text('\n [{"text": "a"},\n {"text": "b"}, 3]')
    found = list(source_rows(str(tmp_path / "a.json")))
    assert [row.values.get("text") for row in found] == ["a", "b", None]
    assert found[1].where.endswith("a.json, object 2")
    assert "object 3 is of type int; it must be a dict" in found[2].problem
    (tmp_path / "b.json").write_text('["a text", "another"]')
    found = list(source_rows(str(tmp_path / "b.json")))
    assert ["type str" in row.problem for row in found] == [True, True]
    (tmp_path / "b.json").write_text('[1] first\n["x", "y"]\n')
    texts = [row.values["text"] for row in source_rows(str(tmp_path / "b.json"))]
    assert texts == ["[1] first", '["x", "y"]'], "lines of text"


def test_a_header_of_many_bytes(tmp_path):
    before = csv.field_size_limit(131_072)  # as it is before the first table
    try:
        (row,) = rows(tmp_path, "a.csv", "x" * 200_000 + ",b\n1,2\n")
    finally:
        csv.field_size_limit(before)
    assert row.values["b"] == "2"


def test_values_that_python_has_no_type_for_are_text_or_named(tmp_path):
    """In columns that nobody may ask for."""
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
    table = pa.table(
        {
            "text": ["a", "b"],
            "ns": pa.array([1, 2], pa.timestamp("ns")),
            "zone": pa.array([1, 2], pa.timestamp("us", "Nowhere/X")),
            "day": pa.array([2**30, 0], pa.date32()),
            "bad": bad,
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    first, second = read_table(str(tmp_path / "a.parquet"))
    assert text_of(first, "text") == "a" and text_of(first, "bad") == "a"
    assert first.values["ns"].endswith("00.000000001")
    with pytest.raises(ValueError, match=r"row 2: bad=\(a damaged value\) must be a"):
        text_of(second, "bad")


def test_json_lines_end_at_line_feeds_alone(tmp_path):
    text = "a\u2028b\u0085c\u000bd"
    content = json.dumps({"text": text}, ensure_ascii=False) + '\n\n{"text": "e"}'
    found = rows(tmp_path, "a.jsonl", content)
    assert [row.values["text"] for row in found] == [text, "e"]
    assert lines(found) == [1, 3]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", "a,b\n1,2\n\n3\n", r"a.csv, line 4 has 1 fields; .* has 2: a, b\."),
        ("a.csv", 'a,b\n"1\n2",2\n1,2,3\n', r"a.csv, line 4 has 3 fields"),
        ("a.csv", 'a,b\n1,"2\n3,4\n', r"a.csv, line 2: unexpected end .* be quoted"),
        ("a.csv", 'a,b\n1,2\n"x" y,2\n', r"a.csv, line 3: ',' expected after '\"'"),
        ("a.tsv", "a\tb\n1\t2\t3\n", r"a.tsv, line 2 has 3 fields"),
        ("a.tsv", "a\tb\ta\n1\t2\t3\n", r"a.tsv, line 1 names a twice; each column"),
        ("a.csv", "sep=;\na;b;a\n1;2;3\n", r"a.csv, line 2 names a twice; each col"),
        ("a.csv", "", r"a.csv has no rows; it must have at least one\."),
        ("a.csv", "a,b\n", r"a.csv has no rows"),
        ("a.jsonl", "\n \n", r"a.jsonl has no rows"),
        (
            "a.csv",
            b"a\n\xe9t\xe9\n",
            r"a.csv, line 2: byte 0xe9 at 2 is not UTF-8; convert",
        ),
        ("a.csv", "a\nПривет, мир\n".encode("cp1251"), "such as WINDOWS-1251, GB18030"),
        ("a.csv", "a\nсудья читает\n".encode("cp1251"), "iconv -f ENCODING -t UTF-8"),
        ("a.csv", "a\nb\n".encode("utf-32"), "iconv -f UTF-32 -t UTF-8"),
        ("a.jsonl", '{"a": 1}\n{"a":', r"a.jsonl, line 2 is not JSON: Expecting"),
        ("a.jsonl", '{"a": 1}\n\n[1]', r"a.jsonl, line 3 must be a JSON object"),
        ("a.jsonl", '{"a":' + "[" * 200_000, r"a.jsonl, line 1 is nested too deep"),
        ("a.txt", "text\n", r"a.txt ends in .txt; it must be .csv, .tsv or .jsonl"),
        ("a", "text\n", r"a ends in nothing; it must be"),
    ],
)
def test_refused_tables(name, content, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        rows(tmp_path, name, content)


def test_no_such_table(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(FileNotFoundError, match=f"{path} is not a file.*; name a"):
            read_table(str(path))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"body": "x", "label": "a"}, "f, line 3 has no text; .* are body, label"),
        ({"text": ""}, "f, line 3: text is empty; write a text, or drop it"),
        ({"text": " \t\u2003"}, "f, line 3: text is empty"),
        ({"text": 3}, "f, line 3: text=3 must be a text"),
        ({"text": None}, "f, line 3: text=None must be a text"),
        ({"text": "a \ud83d b"}, "f, line 3: text holds half of a surrogate pair"),
    ],
)
def test_refused_texts(fields, says):
    with pytest.raises(ValueError, match=says):
        text_of(TableRow(fields, "f, line 3"), "text")


def test_a_text_is_taken_as_it_is():
    row = json_row('{"text": " \\ud83d\\ude00 a\\u0000b "}', "f, line 1")
    assert text_of(row, "text") == " \U0001f600 a\0b "


# All that can stand in a file of UTF-8, line breaks, quotes and NUL among it.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=1, max_size=8))
def test_what_a_csv_writer_wrote_is_read_back(tmp_path_factory, pairs):
    written = io.StringIO()
    csv.writer(written).writerows([("first", "second"), *pairs])
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(written.getvalue().encode())
    found = [tuple(row.values.values()) for row in read_table(str(path))]
    assert found == pairs


@given(st.lists(ANY_TEXT, min_size=1, max_size=8), st.booleans())
def test_what_a_json_writer_wrote_is_read_back(tmp_path_factory, texts, ascii_only):
    written = "\n".join(
        json.dumps({"text": text}, ensure_ascii=ascii_only) for text in texts
    )
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(written.encode())
    assert [row.values["text"] for row in read_table(str(path))] == texts


def test_a_missing_column_of_many_is_told_in_a_short_line():
    columns = [f"feature {i}" for i in range(1000)] + ["sentiment"]
    message = missing_column_message("a.csv, line 2", "sentimant", columns)
    assert message == (
        "a.csv, line 2 has no sentimant; its columns are "
        + ", ".join(columns[:16])
        + ", … and 985 others. Did you mean sentiment?"
    )
    listed = missing_column_message("a.csv, line 2", "x", columns[:17])
    assert "others" not in listed and listed.endswith("feature 16.")
    long = missing_column_message("a.csv, line 2", "x" * 500, ["y" * 500, "z\n" * 500])
    assert len(long) < 300
