"""Rows in memory to learn from: the same examples as those of a JSONL file."""

import dataclasses
import decimal
import json

import numpy as np
import pyarrow as pa
import pytest
from run_helpers import classifier_config

import bert_jax
from bert_jax.config import ExamplesConfig, SentencePairsConfig
from bert_jax.tables.memory import MemoryTable
from bert_jax.tasks.kinds import finetuning_task

ROWS = [
    {"review": f"The {who} sees the {thing}.", "who": who}
    for thing in ("river", "tower", "letter", "garden")
    for who in ("judge", "sailor") * 5
]
TASKS = [
    ("text-classification", {"text": "a", "label": 3}, {}),
    ("text-classification", {"text": "é", "a": 1, "b": False}, {"label_column": "a b"}),
    ("text-regression", {"text": "a", "label": 1.5}, {}),
    ("sentence-pairs", {"query": "a", "document": "b"}, {}),
    (
        "sentence-pairs",
        {"query": "a", "document": "b", "label": 0.5},
        {"sentence_pairs": SentencePairsConfig(objective="cosine")},
    ),
    ("multiple-choice", {"context": "a", "choices": ["b", "c"], "label": 1}, {}),
    (
        "question-answering",
        {
            "question": "a",
            "context": "b c",
            "answers": {"text": ["c"], "answer_start": [2]},
        },
        {},
    ),
    ("token-classification", {"tokens": ["Oslo"], "ner_tags": ["B-LOC"]}, {}),
]


class Frame:
    """A table as pandas has it: by its columns, with NaN where a value is missing."""

    def __init__(self, rows: list[dict[str, object]], columns: list[object]) -> None:
        self._rows, self.columns = rows, columns

    def __iter__(self):
        return iter(self.columns)

    def to_dict(self, orient: str) -> list[dict[str, object]]:
        assert orient == "records"
        return self._rows


class NAType:
    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


def numpy_row(row):
    """A row with NumPy's numbers and arrays, and tuples."""
    kinds = {float: np.float64, int: np.int64, bool: np.bool_, list: np.array}
    return {
        name: kinds.get(type(value), lambda same: same)(value)
        for name, value in row.items()
    }


@pytest.mark.parametrize(("task", "row", "changes"), TASKS)
def test_the_examples_are_those_of_a_file(task, row, changes, tmp_path, capsys):
    if "label_column" in changes:
        changes = changes | {"label_column": tuple(changes["label_column"].split())}
    rows = [row, row | dict.fromkeys(row, ""), row, row | {"other": None}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def read(source, **more):
        return finetuning_task(task, ExamplesConfig(**changes, **more)).read(source)

    expected = read(str(tmp_path / "a.jsonl"), skip_damaged=True)
    capsys.readouterr()
    for table in (rows, map(numpy_row, rows), pa.Table.from_pylist(rows[:1] * 3)):
        source = MemoryTable(table, "train")
        examples = read(source, skip_damaged=True)
        assert len(examples) == 3
        shown = repr(examples).replace(str(source), str(tmp_path / "a.jsonl"))
        if table is rows:
            assert shown.replace("row ", "line ") == repr(expected)
            [line] = capsys.readouterr().err.splitlines()
            assert line.startswith("train (in memory): 1 of 4 rows cannot be used, and")
    message = r"^train \(in memory\), row 2.* So 1 of 4 rows cannot be used; correct"
    with pytest.raises(ValueError, match=message):
        read(MemoryTable(rows, "train"))


def test_missing_values_and_numbers_are_as_json_has_them():
    nan = float("nan")
    row = {
        "a": nan,
        "b": NAType(),
        "c": np.float32(0.5),
        "d": np.array(["x", None], object),
        "e": ({"f": np.int8(1), "g": decimal.Decimal("1E+1")},),
    }
    [read] = MemoryTable(Frame([row], list("abcde"))).rows()
    expected = {"a": None, "b": None, "c": 0.5, "d": ["x", None]}
    assert read.values == expected | {"e": [{"f": 1, "g": "10"}]}
    assert read.where == "rows (in memory), row 1" and not read.problem


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            {"text": ["a"], "label": ["b"]},
            "^train is of type dict; it must be the name of a",
        ),
        (
            7,
            "^train is of type int; it must be the name of a file, a list with a dict",
        ),
        (Frame([], ["a", "a"]), "^train: the table has two columns of one name"),
        (
            ["a", "b"],
            r"^train \(in memory\), row 1 is of type str; it must be a dict .* 2 of 2",
        ),
        ([{0: "a"}], r"^train \(in memory\), row 1 has a column 0; its name must be a"),
        ([], r"^train \(in memory\) has no rows; it must have at least one\."),
        (
            [{"text": "a"}, {"text": "b"}],
            r"^train \(in memory\), row 2 has no label; its columns are",
        ),
    ],
)
def test_what_is_no_table_of_examples_is_refused(
    rows, message, encoder_checkpoint, tmp_path
):
    with pytest.raises(ValueError, match=message):
        bert_jax.finetune(
            "text-classification",
            tmp_path / "run",
            model=encoder_checkpoint,
            train=rows,
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_model_in_memory_is_no_start(tmp_path):
    with pytest.raises(ValueError, match="must be a path .*bert.save.*name that"):
        bert_jax.finetune("text-classification", tmp_path / "run", model=object())
    assert not list(tmp_path.iterdir())


def test_a_run_learns_from_rows_as_from_a_file(encoder_checkpoint, tmp_path, capsys):
    """The second call resumes by the files, and finds the same examples."""
    table = tmp_path / "rows.jsonl"
    table.write_text("\n".join(map(json.dumps, ROWS)))
    config = classifier_config(table, encoder_checkpoint, num_steps=2)
    by_file = dataclasses.replace(
        config, data=dataclasses.replace(config.data, test=str(table))
    )
    none = dataclasses.replace(config.data, train="")
    without = dataclasses.replace(config, data=none, init_from="")
    scores = bert_jax.finetune(
        without,
        workdir=tmp_path / "run",
        model=encoder_checkpoint,
        train=pa.Table.from_pylist(ROWS),
        test=ROWS,
    )
    told = capsys.readouterr().err
    assert scores["test_baseline: accuracy of the commonest label"] == 0.5
    assert "test (in memory): The model learned from 30 of 40 examples" in told
    assert bert_jax.finetune(by_file, tmp_path / "run") == scores
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())["data"]
    assert recorded["train"] == "train (in memory)"
    with pytest.raises(
        FileNotFoundError,
        match=r"^train \(in memory\) is not a file; .*pass them again",
    ):
        bert_jax.evaluate(tmp_path / "run")
    by_rows, by_file = (
        bert_jax.evaluate(tmp_path / "run", data)[0] for data in (ROWS, table)
    )
    assert (
        by_rows
        == by_file
        == pytest.approx({name: scores[f"test_{name}"] for name in by_file})
    )
