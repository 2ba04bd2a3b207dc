"""The files of SQuAD, good and bad."""

import csv
import dataclasses
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from squad_texts import CONTEXT, ask, perfect_outputs, qa, squad_json, tokenizer

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.model import ANSWERABLE_LABELS
from bert_jax.tables.memory import MemoryTable
from bert_jax.tables.rows import TableRow
from bert_jax.tasks.answers.files import question_from_row, read
from bert_jax.tasks.answers.rows import SquadExample
from bert_jax.tasks.answers.task import QuestionAnsweringTask
from bert_jax.tasks.predictions import Predictions, Split, SplitOutputs

CONFIG = ExamplesConfig(max_length=64, max_query_length=8, document_stride=16)


def test_both_releases_are_read(tmp_path):
    other = {"text": "in Warsaw", "answer_start": 21}
    first = qa(answers=[qa()["answers"][0], other])
    none = qa("q2", is_impossible=True, answers=[], plausible_answers=[other])
    examples = read(squad_json(tmp_path / "a.json", [first, none]), CONFIG)
    assert [dataclasses.astuple(example) for example in examples] == [
        ("q1", "Curie", "Where?", CONTEXT, (("Warsaw", 24), ("in Warsaw", 21)), False),
        ("q2", "Curie", "Where?", CONTEXT, (), True),
    ]
    assert all(example.has_label for example in examples)


def test_questions_without_answers_are_read_to_be_answered(tmp_path):
    bare = {"id": "q1", "question": "Where?"}
    (example,) = read(squad_json(tmp_path / "a.json", [bare]), CONFIG)
    assert not (example.has_label or example.misplaced or example.impossible)


NO_ANSWER = [
    [],
    [{"text": "", "answer_start": -1}],
    [{"text": " ", "answer_start": 0}, {"text": None, "answer_start": None}],
    {"text": "", "answer_start": -1},
    {"text": [""], "answer_start": [-1]},
    {"text": [], "answer_start": []},
]
WARSAW = [
    [{"text": "Warsaw", "answer_start": 24}],
    [{"text": "", "answer_start": -1}, {"text": "Warsaw", "answer_start": 24}],
    {"text": "Warsaw", "answer_start": 24},
    {"text": ["Warsaw"], "answer_start": [24]},
]


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "parquet"])
def test_answers_in_every_form(tmp_path, form):
    """Whether or not is_impossible is there, a text that is empty is no answer."""
    answers = [*NO_ANSWER, *WARSAW]
    if form == "parquet":  # a column has one type
        answers = [value for value in answers if isinstance(value, dict)]
        answers = [value for value in answers if isinstance(value["text"], list)]
    rows = [qa(f"q{i}", answers=value) for i, value in enumerate(answers)]
    for row in rows[::2] if form.startswith("json") else []:
        row["is_impossible"] = row["answers"] in NO_ANSWER
    path = str(tmp_path / f"a.{form}")
    if form == "json":
        squad_json(tmp_path / "a.json", rows)
    else:
        rows = [row | {"context": CONTEXT, "title": "Curie"} for row in rows]
    if form == "jsonl":
        (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    if form == "csv":
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, [*rows[0], "is_impossible"])
            writer.writeheader()
            for row in rows:
                marked = str(row["answers"] in NO_ANSWER)
                cells = {"answers": json.dumps(row["answers"])}
                writer.writerow(row | cells | {"is_impossible": marked})
    for i, (example, value) in enumerate(zip(read(path, CONFIG), answers, strict=True)):
        assert (example.id, example.title) == (f"q{i}", "Curie")
        assert example.question == "Where?" and example.context == CONTEXT
        assert example.has_label and not example.misplaced
        assert example.impossible == (value in NO_ANSWER)
        assert example.answers == (() if example.impossible else (("Warsaw", 24),))


def test_a_question_a_row_of_json(tmp_path):
    """An array, objects of lines, or what other libraries have in `data`."""
    rows = [qa(f"q{i}", answers=WARSAW[0]) | {"context": CONTEXT} for i in range(3)]
    lines = "\ufeff" + "\n".join(map(json.dumps, rows))
    path, found = tmp_path / "a.json", []
    for content in (json.dumps(rows, indent=1), lines, json.dumps({"data": rows})):
        path.write_text(content)
        found.append(read(str(path), CONFIG))
    assert found[0] == found[1] == found[2]
    assert [example.id for example in found[0]] == ["q0", "q1", "q2"]
    path.write_text(json.dumps({"data": [*rows, {"question": "Where?"}]}))
    with pytest.raises(
        ValueError, match=r"data\[3\] has no context; its fields are qu"
    ):
        read(str(path), CONFIG)


def test_rows_that_say_little_or_wrong_things(tmp_path):
    row = {"question": "Where?", "context": CONTEXT}
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(row | more) for more in ({}, {"id": 7})))
    first, second = read(str(path), CONFIG)
    assert (first.id, second.id) == ("line 1", "7") and not first.has_label
    for more, message in (
        ({"answers": "Warsaw"}, "a.jsonl, line 1: answers is not JSON"),
        ({"answers": "{'text': array([], dtype=object)}"}, "not JSON: .* json.dumps; "),
        ({"is_impossible": True} | qa(), "line 1: is_impossible is true and there are"),
        ({"answers": {"text": ["x"]}}, "line 1 has no answer_start; its fields are te"),
        ({"context": None}, "line 1: 'context' holds null; it must be a string"),
    ):
        path.write_text(json.dumps(row | more))
        with pytest.raises(ValueError, match=message):
            read(str(path), CONFIG)


def test_values_that_json_has_not_are_named():
    row = {"question": "Where?", "context": CONTEXT, "answers": []}
    for more, kind in (({"context": b"x"}, "bytes"), ({"answers": {"x"}}, "set")):
        table: str = MemoryTable([row | more])
        with pytest.raises(ValueError, match=f"row 1: .* holds a value of type {kind}"):
            read(table, CONFIG)


def test_a_misplaced_answer_is_marked(tmp_path):
    wrong = [{"text": "Warsaw", "answer_start": 25}]
    path = squad_json(tmp_path / "a.json", [qa(answers=wrong), qa("q2")])
    assert [example.misplaced for example in read(path, CONFIG)] == [True, False]


@pytest.mark.parametrize("version", ["v1.1", "v2.0"])
def test_a_published_directory(tmp_path, version):
    squad_json(tmp_path / f"train-{version}.json", [qa("t")])
    squad_json(tmp_path / f"dev-{version}.json", [qa("v")])
    config = dataclasses.replace(CONFIG, path=str(tmp_path))
    assert [read(part, config)[0].id for part in ("train", "validation")] == ["t", "v"]
    own = squad_json(tmp_path / "own.json", [qa("o")])
    assert read(own, config)[0].id == "o"
    with pytest.raises(FileNotFoundError, match="has no test file"):
        read("test", config)


def test_a_directory_of_both_releases(tmp_path):
    squad_json(tmp_path / "train-v1.1.json", [qa()])
    squad_json(tmp_path / "dev-v2.0.json", [qa()])
    config = dataclasses.replace(CONFIG, path=str(tmp_path))
    message = r"holds train-v1.1.json, dev-v2.0.json, of two releases; keep one"
    with pytest.raises(ValueError, match=message):
        read("train", config)


def test_a_directory_without_its_part(tmp_path):
    config = dataclasses.replace(CONFIG, path=str(tmp_path))
    message = "has no train file; looked for train-v1.1.json, train-v2.0.json"
    with pytest.raises(FileNotFoundError, match=message):
        read("train", config)


def test_tfds_is_not_read():
    config = dataclasses.replace(CONFIG, path="tfds:squad")
    with pytest.raises(ValueError, match=r"path=tfds:squad is not read .* JSON files"):
        read("train", config)


ONE = "question 'q1': "
UNLABELLED = {"id": "q2", "question": "Who?"}
BAD_QUESTIONS = {
    "no id": ([{"question": "Where?"}], r"qas\[0\] has no id; its fields are question"),
    "a number as id": ([qa(7)], r"qas\[0\]: 'id' holds a whole number; it must be a s"),
    "not an object": (["Where?"], r"\.qas\[0\]: a string in place of an object with"),
    "no question": (
        [{"id": "q1", "questions": "Where?"}],
        "'q1' has no question; its fields are id, questions. Did you mean questions",
    ),
    "an empty question": ([qa(question=" ")], ONE + "'question' is empty"),
    "answers no array": (
        [qa(answers=7)],
        ONE + "'answers' holds a whole number; it mu",
    ),
    "an empty object": ([qa(answers={})], "question 'q1' has no text"),
    "more texts than starts": (
        [qa(answers={"text": ["x", "y"], "answer_start": [1]})],
        ONE + "answers has 2 text and 1 answer_start; each text needs its own",
    ),
    "empty answers, possible": (
        [qa(answers=[], is_impossible=False)],
        ONE + "is_impossible is false and answers holds no text; correct one",
    ),
    "no answer_start": (
        [qa(answers=[{"text": "x"}])],
        "question 'q1' has no answer_start; its fields are text",
    ),
    "a start in quotes": (
        [qa(answers=[{"text": "x", "answer_start": "1"}])],
        ONE + "'answer_start' holds a string; it must be a whole number",
    ),
    "a truth value as start": (
        [qa(answers=[{"text": "x", "answer_start": True}])],
        ONE + "'answer_start' holds a boolean",
    ),
    "impossible in quotes": (
        [qa(is_impossible="no")],
        ONE + "'is_impossible' holds a string; it must be a boolean",
    ),
    "impossible, answered": (
        [qa(is_impossible=True)],
        ONE + "is_impossible is true and there are answers; remove one",
    ),
    "half a character": (
        [qa(question="\ud800?")],
        ONE + r"'question' holds '\\ud800' at character 0, which is half of a char",
    ),
    "twice": ([qa(), qa()], "two questions have the id 'q1'; predictions are"),
    "unlabelled last": ([qa(), UNLABELLED], "'q2' has no 'answers', and others have"),
    "unlabelled first": ([UNLABELLED, qa()], "'q2' has no 'answers', and others have"),
    "nothing": ([], "there is no question"),
}


@pytest.mark.parametrize("name", BAD_QUESTIONS)
def test_bad_questions(tmp_path, name):
    qas, message = BAD_QUESTIONS[name]
    path = squad_json(tmp_path / "bad.json", qas)
    with pytest.raises(ValueError, match=message) as error:
        read(path, CONFIG)
    assert str(error.value).startswith(path + ": ") and "\n" not in str(error.value)


def test_an_empty_context(tmp_path):
    path = squad_json(tmp_path / "bad.json", [qa()], context="\n")
    with pytest.raises(ValueError, match=r"paragraphs\[0\]: 'context' is empty"):
        read(path, CONFIG)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "one of SQuAD's JSON files, is not JSON: Expecting value"),
        (b'{"a": 1}\n{"a": 2}\n', "is not JSON: Extra data: line 2 column 1"),
        (b'{"data": "\xff"}', "byte 0xff at 10 is not UTF-8; convert"),
        (b"[" * 100_000, "is nested too deep to be read"),
        (
            b'{"data": [' + b"1" * 5000 + b"]}",
            "has 5000 digits; at most 1000",
        ),
        (b"[]", "an array in place of an object with 'data'"),
        (b'{"questions": []}', "has no data; its fields are questions"),
        (b'{"data": {}}', "'data' holds an object; it must be an array"),
        (b'{"data": [null]}', r"data\[0\]: null in place of an object"),
        (b'{"data": []}', "there is no question"),
    ],
)
def test_bad_files(tmp_path, content, message):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read(str(path), CONFIG)
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)


def test_no_file(tmp_path):
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(
            FileNotFoundError, match=f"{path} is not a file.*; give one"
        ):
            read(str(path), CONFIG)


def test_a_byte_order_mark_is_no_text(tmp_path):
    path = tmp_path / "a.json"
    squad_json(path, [qa()])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read(str(path), CONFIG)[0].id == "q1"


def test_a_question_of_a_user():
    values = {"question": "Where?", "context": CONTEXT}
    example = question_from_row(TableRow(values, "line 1"))
    assert example == SquadExample("line 1", "", "Where?", CONTEXT)
    assert not example.has_label
    assert question_from_row(TableRow(values | {"id": 7}, "line 1")).id == "7"
    assert question_from_row(TableRow(values | {"id": None}, "line 1")).id == "line 1"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"question": "Where?"}, "line 1 has no context; its fields are question"),
        ({"version": "2", "data": []}, "SQuAD's nested form, which `bert-jax evalua"),
        ({"question": "", "context": "x"}, "line 1: 'question' is empty"),
        ({"question": ["x"], "context": "x"}, "line 1: 'question' holds an array"),
        (
            {"question": "x", "context": "\udc00"},
            "line 1: 'context' holds .* is half of",
        ),
    ],
)
def test_a_bad_question_of_a_user(values, message):
    with pytest.raises(ValueError, match=message):
        question_from_row(TableRow(values, "line 1"))


@pytest.mark.parametrize("labels", [(), ANSWERABLE_LABELS])
def test_the_official_files(tmp_path, labels):
    examples = [ask("Warsaw", id="a"), ask("Paris", id="b")]
    if labels:
        examples.append(ask(None, id="c"))
    model = BertConfig(head="question_answering", labels=labels)
    task = QuestionAnsweringTask(CONFIG, model)
    tokenized = task.tokenize(examples, tokenizer())
    outputs = SplitOutputs(Split(examples, tokenized), perfect_outputs(tokenized))
    predictions = Predictions(examples, task.predict(outputs))
    names = task.write(predictions, tmp_path)
    files = {name: json.loads((tmp_path / name).read_text()) for name in names}
    assert set(files) == {path.name for path in tmp_path.iterdir()}
    answers = {"a": "Warsaw", "b": "Paris"} | ({"c": ""} if labels else {})
    assert files["predictions.json"] == answers
    best = files["nbest_predictions.json"]
    assert list(best) == list(answers)
    for name, entries in best.items():
        assert entries[0]["text"] == answers[name]
        for entry in entries:
            keys = ["text", "probability", "start_logit", "end_logit"]
            assert list(entry) == keys
    if labels:
        null_odds = files["null_odds.json"]
        assert null_odds["c"] > 0 > null_odds["a"]
    else:
        assert "null_odds.json" not in files
