"""Damaged rows: counted, the first one named, refused or left out; for every task."""

import json

import pytest

from bert_jax.config import ExamplesConfig, SentencePairsConfig
from bert_jax.tables.read import source_rows
from bert_jax.tasks.kinds import finetuning_task

CSV = "text,label\n" + "".join(f"Text {i},{'ab'[i % 2]}\n" for i in range(20))
ROWS = {
    "no text": (",a\n", "line 22: text is empty; write a text, or drop it"),
    "no label": ("Text,\n", "line 22: label is empty"),
    "a field too many": ("Text,a,b\n", "line 22 has 3 fields; the header has 2"),
    "a field too few": ("Text\n", "line 22 has 1 fields; the header has 2"),
    "two files": ("text,label\n", "line 22 is the header again; drop it"),
    "two marked files": ("\ufefftext,label\n", "line 22 is the header again; drop it"),
    "a quote": ('"Text" x,a\n', "line 22: ',' expected after '\"'"),
}
JSON_ROWS = {
    "torn": '{"text": "a", "la',
    "a number": {"text": 3, "label": "a"},
    "null": {"text": None, "label": "a"},
    "no field": {"body": "a", "label": "b"},
    "no label": {"text": "a", "label": None},
    "half a character": {"text": "a \ud83d", "label": "b"},
    "blank": {"text": " \t\u3000", "label": "b"},
    "a list": ["a", "b"],
    "twice": '{"text": "a", "text": "b", "label": "a"}',
}


def read(path, task="text-classification", **changes):
    return finetuning_task(task, ExamplesConfig(**changes)).read(str(path))


@pytest.mark.parametrize(("damaged", "says"), ROWS.values(), ids=ROWS)
def test_damaged_rows_of_csv(damaged, says, tmp_path, capsys):
    (tmp_path / "a.csv").write_text(CSV + damaged + "Text,a\n" + damaged)
    number = r" So 2 of 23 rows cannot be used; .* by --data.skip-damaged\.$"
    with pytest.raises(ValueError, match=f"a.csv, {says}.*{number}"):
        read(tmp_path / "a.csv")
    assert len(read(tmp_path / "a.csv", skip_damaged=True)) == 21
    [line] = capsys.readouterr().err.splitlines()
    assert "2 of 23 rows cannot be used, and are left out; the first: " in line
    assert f"a.csv, {says}" in line


def test_damaged_rows_of_json(tmp_path, capsys):
    good = json.dumps({"text": "a", "label": "b"})
    rows = [r if isinstance(r, str) else json.dumps(r) for r in JSON_ROWS.values()]
    for row in rows:
        (tmp_path / "a.jsonl").write_text(f"{good}\n{row}\n{good}\n")
        with pytest.raises(ValueError, match="a.jsonl, line 2.* So 1 of 3 rows"):
            read(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text("\n".join([good, *rows, good]))
    with pytest.raises(ValueError, match=rf"a.jsonl, line 2.* So {len(rows)} of 11"):
        read(tmp_path / "a.jsonl")
    assert len(read(tmp_path / "a.jsonl", skip_damaged=True)) == 2
    assert f"{len(rows)} of 11 rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "row", "changes"),
    [
        ("text-regression", {"text": "a", "label": "1.5"}, {}),
        ("sentence-pairs", {"query": "a", "document": "b"}, {}),
        (
            "sentence-pairs",
            {"query": "a", "document": "b", "label": 0.5},
            {"sentence_pairs": SentencePairsConfig(objective="cosine")},
        ),
        ("multiple-choice", {"context": "a", "choices": ["b", "c"], "label": 1}, {}),
        ("question-answering", {"question": "a", "context": "b", "answers": []}, {}),
        ("token-classification", {"tokens": ["a"], "tags": ["O"]}, {}),
    ],
)
def test_every_task_that_reads_tables_leaves_them_out(
    task, row, changes, tmp_path, capsys
):
    lines = [json.dumps(r) for r in (row, row | dict.fromkeys(row, ""), row)]
    (tmp_path / "a.JSONL").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="a.JSONL, line 2.* So 1 of 3 rows cannot"):
        read(tmp_path / "a.JSONL", task, **changes)
    assert len(read(tmp_path / "a.JSONL", task, skip_damaged=True, **changes)) == 2
    assert "1 of 3 rows cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "row", "label"),
    [
        ("text-classification", {"text": "a"}, {"label": "b"}),
        ("multiple-choice", {"context": "a", "choices": ["b", "c"]}, {"label": 1}),
        ("question-answering", {"question": "a", "context": "b"}, {"answers": []}),
        ("token-classification", {"tokens": ["a"]}, {"tags": ["O"]}),
        ("sentence-pairs", {"query": "a", "document": "b"}, {"label": 0.5}),
    ],
)
def test_rows_without_a_label_beside_others_are_left_out(
    task, row, label, tmp_path, capsys
):
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(map(json.dumps, (row, row | label, row))))
    assert len(read(file, task, skip_damaged=True)) == 1
    line = capsys.readouterr().err
    assert "2 of 3 rows cannot be used, and are left out" in line
    assert "the first: " in line and "a.jsonl, line 1 has no label." in line
    file.write_text("\n".join(map(json.dumps, (row, row))))
    assert len(read(file, task, skip_damaged=True)) == 2, "a file to predict"


def test_damaged_questions_of_squad(tmp_path, capsys):
    def paragraph(i, **changes):
        qa = {"id": f"q{i}", "question": "Where?", "answers": [], **changes}
        return {"context": "In Oslo.", "qas": [qa]}

    damaged = [paragraph(1, question=" "), paragraph(2, answers=3), {"qas": []}, 7]
    damaged += [paragraph(3) | {"context": ""}, {"context": "Oslo", "qas": ["?"]}]
    articles = [{"paragraphs": [paragraph(0), *damaged, paragraph(4)]}, {"title": ""}]
    (tmp_path / "a.json").write_text(json.dumps({"data": articles}))
    # An empty list of questions has none to leave out.
    number = "So 6 of 8 questions cannot be used; .* by --data.skip-damaged"
    with pytest.raises(ValueError, match=f"question 'q1': 'question' is .*{number}"):
        read(tmp_path / "a.json", "question-answering")
    examples = read(tmp_path / "a.json", "question-answering", skip_damaged=True)
    assert [example.id for example in examples] == ["q0", "q4"]
    assert "6 of 8 questions cannot be used" in capsys.readouterr().err


def test_damaged_sentences_of_columns(tmp_path, capsys):
    blocks = ["Ada\tB-PER\nruns\tO", "Oslo\tLOC\nis\tO", "is\tO\tx\ncold", "He\tO"]
    (tmp_path / "a.conll").write_text("\n\n".join(blocks) + "\n")
    number = "So 1 of 4 sentences cannot be used; .* by --data.skip-damaged"
    with pytest.raises(ValueError, match=f"a.conll, line 7: 3 columns.*{number}"):
        read(tmp_path / "a.conll", "token-classification")
    sentences = read(tmp_path / "a.conll", "token-classification", skip_damaged=True)
    assert [sentence.words for sentence in sentences] == [("Ada", "runs"), ("He",)]
    columns, tags = capsys.readouterr().err.splitlines()
    assert "1 of 4 sentences cannot be used, and are left out; the first:" in columns
    assert "a.conll, line 4: " in tags


def test_rows_that_are_all_damaged_are_never_left_out(tmp_path):
    (tmp_path / "a.csv").write_text("txt,label\n" + "a,b\n" * 9)
    for skip in (False, True):
        with pytest.raises(ValueError, match=r"line 2 has the columns .* So 9 of 9"):
            read(tmp_path / "a.csv", skip_damaged=skip)


def test_a_quote_that_does_not_end_hides_rows_and_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text(CSV + '"Text,a\n' + CSV)
    with pytest.raises(ValueError, match="a.csv, line 22: unexpected end of data"):
        read(tmp_path / "a.csv", skip_damaged=True)


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_finetune_refuses_damaged_rows_of_each_file(
    part, encoder_checkpoint, tmp_path, refused
):
    files = {name: tmp_path / f"{name}.csv" for name in ("train", "validation", "test")}
    for name, file in files.items():
        file.write_text(CSV + ",a\nText,\n" * (name == part))
    command = ["finetune", "text-classification", "--workdir", str(tmp_path / "run")]
    command += ["--init-from", str(encoder_checkpoint)]
    for name, file in files.items():
        command += [f"--data.{name}", str(file)]
    line = refused(*command)
    assert f"{part}.csv, line 22: text is empty" in line
    assert "So 2 of 22 rows cannot be used; correct them, or leave them out by" in line
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_each_line_that_an_open_quote_takes_is_counted(tmp_path, capsys):
    """They end at the next quote; a row for each line stays in its place."""
    lines = [f"good {number},pos" for number in range(9)]
    lines[2], lines[6] = '"open,pos', 'he said "hi" there,pos'
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    found = list(source_rows(str(tmp_path / "a.csv")))
    assert [bool(row.problem) for row in found] == [False] * 2 + [True] * 5 + [
        False
    ] * 2
    assert "a.csv, lines 4 to 8: ',' expected after" in found[2].problem
    assert found[4].where.endswith("line 6")
