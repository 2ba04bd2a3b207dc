"""`bert-jax finetune`, `evaluate` and `predict`, from a table to an answer."""

import csv
import dataclasses
import io
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from run_helpers import answered_at_once
from small_world import OBJECTS, SUBJECTS, VERBS

import bert_jax
from bert_jax.cli.finetuning import FinetuneOptions, default_config, read_finetune
from bert_jax.cli.inference import with_other_files
from bert_jax.cli.main import main
from bert_jax.config import ExamplesConfig
from bert_jax.inference.evaluation import settings_for
from bert_jax.pretrained import load_pretrained

TEXTS = [
    f"The {SUBJECTS[i % 4]} {VERBS[i % 5]} the {OBJECTS[i % 7]}." for i in range(40)
]
SMALL = "--data.max-length 32 --data.num-buckets 1 --batch-size 8 --num-steps 2 "
SMALL += "--mesh.data 1 --log-every 1"


def table(path: Path, column: str, values: list[Any]) -> str:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", column])
        writer.writerows(zip(range(100, 140), TEXTS, values, strict=True))
    return str(path)


def ok(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """What a command prints that ends well."""
    code = main(list(arguments))
    output, error = capsys.readouterr()
    assert code == 0, error
    return output.splitlines()


def tuned(
    factory: pytest.TempPathFactory,
    encoder: Path,
    task: str,
    values: list[Any],
    *options: str,
) -> Path:
    """The workdir of a run of two steps, beside the table that it learned from."""
    folder = factory.mktemp("tuned")
    file = table(folder / "all.csv", "mark", values)
    data = ("--data.train", file, "--label-column", "mark")
    workdir = folder / "run"
    where = ("--workdir", str(workdir), "--init-from", str(encoder))
    assert main(["finetune", task, *where, *data, *SMALL.split(), *options]) == 0
    return workdir


@pytest.fixture(scope="module")
def classes(tmp_path_factory, encoder_checkpoint) -> Path:
    values = [SUBJECTS[i % 4] for i in range(40)]
    task = "text-classification"
    return tuned(tmp_path_factory, encoder_checkpoint, task, values)


def test_scores_are_the_best_checkpoints(classes, capsys):
    rows = classes.parent / "all.json"
    rows.write_text(json.dumps([{"text": TEXTS[0], "mark": SUBJECTS[0]}]))
    assert "accuracy" in ok(capsys, "evaluate", str(classes), "--input", str(rows))[0]
    found, *files = ok(capsys, "evaluate", "--model", str(classes))
    rule = "baseline: accuracy of the commonest label"
    assert list(json.loads(found)) == ["accuracy", "macro_f1", "mcc", rule]
    assert json.loads(found)[rule] == 0.25 and not files
    lines = (classes / "metrics.jsonl").read_text().splitlines()
    told = json.loads(lines[-1])
    assert told["split"] == "validation"
    assert json.loads(found)["accuracy"] == pytest.approx(told["accuracy"], abs=1e-4)


def test_a_file_of_predictions_is_written(classes, capsys, tmp_path):
    output = tmp_path / "out"
    where = ("--model", str(classes), "--output", str(output))
    data = ("--input", str(classes.parent / "all.csv"))
    assert main(["evaluate", *where, *data]) == 0
    printed, error = capsys.readouterr()
    assert f"{data[1]}: The model learned from 36 of 40 examples;" in error
    assert "\naccuracy 0.2500 is no better than the commonest label: 0.2500" in error
    found, file = printed.splitlines()
    assert file == str(output / "predictions.tsv")
    header, *lines = (output / "predictions.tsv").read_text().splitlines()
    assert header == "index\tprediction\tprobability\tlabel\ttext"
    assert [line.split("\t")[3:] for line in lines] == [
        [SUBJECTS[i % 4], text] for i, text in enumerate(TEXTS)
    ]
    right = [line.split("\t")[1] == SUBJECTS[i % 4] for i, line in enumerate(lines)]
    assert json.loads(found)["accuracy"] == pytest.approx(sum(right) / 40, abs=1e-4)


def test_a_pair_of_texts_is_refused_by_a_model_of_single_ones(
    classes, refused, tmp_path
):
    file, mark = tmp_path / "pairs.csv", SUBJECTS[0]
    file.write_text(f"premise,hypothesis,mark\na b,c,{mark}\n")
    for verb in ("evaluate", "predict"):
        error = refused(verb, classes, "--input", file)
        assert "line 2 holds a pair of texts, and the examples that the mo" in error
    with pytest.raises(ValueError, match="text 0 holds a pair"):
        bert_jax.load(str(classes)).classify([("a", "b")])
    with pytest.raises(ValueError, match="line 2 holds a pair"):
        bert_jax.evaluate(classes, ExamplesConfig(validation=str(file)))
    data = ("--data.train", classes.parent / "all.csv", "--label-column", "mark")
    run = ("--init-from", classes, "--workdir", tmp_path / "new", *SMALL.split())
    command = ("finetune", "text-classification", *data, *run)
    assert "line 2 holds a pair" in refused(*command, "--data.validation", file)
    assert not (tmp_path / "new").exists()


def test_a_length_of_0_is_the_models_own(classes):
    """As the help says; rows were as long as the model has positions."""
    model = load_pretrained(str(classes))
    assert model.data is not None
    short = dataclasses.replace(model, data=model.data.changed(max_length=8))
    for length, used in ((0, 8), (16, 16)):
        data = ExamplesConfig(max_length=length)
        assert settings_for(data, short).max_length == used


def test_a_file_without_labels_is_answered_but_not_scored(classes, capsys, tmp_path):
    file = tmp_path / "new.csv"
    file.write_text("text\nThe judge reads.\n")
    where = ("--model", str(classes), "--output", str(tmp_path))
    found, _ = ok(capsys, "evaluate", *where, "--input", str(file))
    assert json.loads(found) == {}
    assert len((tmp_path / "predictions.tsv").read_text().splitlines()) == 2


def test_a_workdir_is_not_another_runs(
    classes, pretrained, encoder_checkpoint, refused
):
    """What is advised goes: fine-tuning has no --keep-optimizer."""
    data = f"--data.train {classes.parent / 'all.csv'} --label-column mark {SMALL}"
    begin = f"text-classification --init-from {encoder_checkpoint} {data} --workdir"
    for workdir, more, says in (
        (classes, "--num-steps 3", f"run, --init-from {classes} with a new --workdir."),
        (
            pretrained,
            "",
            f"{pretrained} is the workdir of a run of `bert-jax pretrain`",
        ),
    ):
        command = f"finetune {begin} {workdir} {more}"
        error = refused(*command.split())
        assert says in error and "keep-optimizer" not in error


def predictions(capsys, monkeypatch, *arguments: str, typed: str = "") -> list[Any]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
    return [json.loads(line) for line in ok(capsys, "predict", *arguments)]


@pytest.fixture
def by_table(classes, capsys, monkeypatch) -> list[Any]:
    """Predictions for the table, in its order, with the ids of its rows."""
    where = ("--model", str(classes), "--input", str(classes.parent / "all.csv"))
    return predictions(capsys, monkeypatch, *where)


def same(found: list[Any], other: list[Any]) -> bool:
    return all(
        a["label"] == b["label"]
        and a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-5)
        for a, b in zip(found, other, strict=True)
    )


def test_a_line_is_answered_before_the_next_one_comes(classes, by_table, monkeypatch):
    arguments = ["predict", "--model", str(classes)]
    lines = answered_at_once(monkeypatch, arguments, TEXTS[:3])
    assert same([json.loads(line) for line in lines], by_table[:3])


def test_predictions_come_in_the_order_of_the_table(by_table):
    assert [each["id"] for each in by_table] == [str(i) for i in range(100, 140)]
    assert list(by_table[0]) == ["id", "label", "probabilities"]
    assert list(by_table[0]["probabilities"]) == sorted(SUBJECTS[:4])
    assert sum(by_table[0]["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    values = {each["probabilities"]["judge"] for each in by_table}
    assert len(values) > 20, "unlike texts must have unlike predictions"


@pytest.mark.parametrize("batch_size", ["1", "7"])
def test_predictions_do_not_depend_on_the_batch_size(
    batch_size, classes, by_table, capsys, monkeypatch
):
    where = ("--model", str(classes), "--input", str(classes.parent / "all.csv"))
    size = ("--batch-size", batch_size)
    assert same(predictions(capsys, monkeypatch, *where, *size), by_table)


def test_standard_input_of_texts_and_of_json(classes, by_table, capsys, monkeypatch):
    objects = [json.dumps({"id": i, "text": text}) for i, text in enumerate(TEXTS[20:])]
    typed = "\r\n".join([*TEXTS[:20], *objects])
    where = ("--model", str(classes))
    found = predictions(capsys, monkeypatch, *where, typed=typed)
    assert same(found, by_table)
    assert [each.get("id") for each in found] == [None] * 20 + list(range(20))


def test_a_file_of_texts(classes, by_table, capsys, monkeypatch, tmp_path):
    """Any suffix but a table's is a text a line; a byte order mark is none of it."""
    braces = ["{{Infobox}} of a town", '{"text": "one"}']
    for name, lines in (("a.txt", TEXTS), ("b", [json.dumps({"text": TEXTS[0]})])):
        (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8-sig")
        where = ("--model", str(classes), "--input", str(tmp_path / name))
        found = predictions(capsys, monkeypatch, *where)
        assert same(found, by_table[: len(lines)])
    (tmp_path / "c.TXT").write_text("\n".join(braces))
    where = ("--model", str(classes), "--input", str(tmp_path / "c.TXT"))
    expected = bert_jax.load(classes).classify(braces)
    assert same(predictions(capsys, monkeypatch, *where), expected)


def test_a_file_with_other_columns(classes, by_table, capsys, monkeypatch, tmp_path):
    (tmp_path / "a.csv").write_text("body\n" + "\n".join(TEXTS) + "\n")
    where = ("--model", str(classes), "--input", str(tmp_path / "a.csv"))
    named = ("--text-column", "body")
    assert same(predictions(capsys, monkeypatch, *where, *named), by_table)


def test_numbers_have_the_digits_that_they_know(by_table):
    values = [p for each in by_table for p in each["probabilities"].values()]
    assert all(value == float(f"{value:.9g}") for value in values)


def test_what_stands_in_the_column_of_labels_is_not_looked_at(
    classes, by_table, capsys, monkeypatch, tmp_path
):
    for value in ("unheard of", ""):
        file = table(tmp_path / "new.csv", "mark", [value] * 40)
        where = ("--model", str(classes), "--input", file)
        assert same(predictions(capsys, monkeypatch, *where), by_table)


def test_a_terminal_obeys_no_character_of_a_text_or_a_name(classes, capsys, tmp_path):
    text, path = "The judge\x9b31m reads\x7f.", tmp_path / "a\x1b[31m.csv"
    path.write_text(f"text,mark\n{text},judge\n")
    arguments = [str(classes), "--input", str(path)]
    (line,) = ok(capsys, "predict", *arguments, "--columns", "text")
    assert json.loads(line)["text"] == text and line.isprintable()
    assert main(["evaluate", *arguments]) == 0
    assert "Scored: " in (error := capsys.readouterr().err) and "\x1b" not in error


def test_no_input_no_predictions(classes, capsys, monkeypatch):
    assert predictions(capsys, monkeypatch, "--model", str(classes)) == []


@pytest.mark.slow
def test_several_classes(tmp_path_factory, encoder_checkpoint, capsys, monkeypatch):
    values = ["|".join(["x", "y", "z"][: i % 4]) for i in range(40)]
    where = (tmp_path_factory, encoder_checkpoint, "text-classification", values)
    workdir = tuned(*where, "--data.multi-label", "--data.labels", "z", "x", "y")
    capsys.readouterr()
    (found,) = ok(capsys, "evaluate", "--model", str(workdir))
    assert list(json.loads(found)) == [
        *("micro_f1", "macro_f1", "exact_match"),
        "baseline: micro_f1 of the commonest labels",
    ]
    (one,) = predictions(capsys, monkeypatch, "--model", str(workdir), typed="a")
    assert list(one["probabilities"]) == ["z", "x", "y"]
    assert one["labels"] == [k for k, v in one["probabilities"].items() if v > 0.5]


@pytest.mark.slow
def test_numbers(tmp_path_factory, encoder_checkpoint, capsys, monkeypatch):
    values = [i % 4 / 2 for i in range(40)]
    task = "text-regression"
    workdir = tuned(tmp_path_factory, encoder_checkpoint, task, values)
    capsys.readouterr()
    (found,) = ok(capsys, "evaluate", "--model", str(workdir))
    assert list(json.loads(found)) == [
        *("r2", "pearson", "spearman", "mean_squared_error"),
        "baseline: mean_squared_error of the mean",
    ]
    (one,) = predictions(capsys, monkeypatch, "--model", str(workdir), typed="a")
    assert list(one) == ["value"] and isinstance(one["value"], float)


def test_the_configuration_of_a_task_is_printed(capsys):
    lines = ok(capsys, "finetune", "mrpc", "--num-epochs", "2", "--print-config")
    values = json.loads("\n".join(lines))
    assert values["data"]["glue"] == "mrpc" and values["num_epochs"] == 2
    assert values["optimizer"]["warmup_share"] == 0.1


def test_usual_configurations():
    assert default_config("stsb").task == "text-regression"
    assert default_config("cola").task == "text-classification"
    questions = default_config("question-answering")
    assert (questions.data.max_length, questions.num_epochs) == (0, 2.0)
    assert default_config("multiple-choice").num_epochs == 3.0


@pytest.mark.parametrize("glue", ["", "mrpc"])
def test_a_file_is_scored_in_place_of_the_directory_of_a_run(glue):
    data = ExamplesConfig(path="directory", glue=glue)
    for arguments in (["--input", "dev.tsv"], ["--input=dev.tsv"]):
        scored = with_other_files(data, ["runs/a", *arguments], "evaluate")
        assert scored == ExamplesConfig(validation="dev.tsv", test="dev.tsv")
    kept = with_other_files(data, ["runs/a", "--data.path", "other"], "evaluate")
    assert kept == data


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", b"text,mark\na,judge\nb,king\n", "line 3: 'king' is none of the cla"),
        ("a.csv", b"text,mark\na\n", "a.csv, line 2 has 1 fields; the header has 2"),
        ("a.csv", b"body,mark\na,judge\n", "line 2 has the columns body, mark; name"),
        ("a.csv", b"text,mark\na,judge\n,clerk\n", "a.csv, line 3: text is empty"),
        (
            "a.jsonl",
            b'{"text": "a", "mark": "judge"}\n{"text": "b"}',
            "a.jsonl, line 2 has no label, but other rows have",
        ),
        (
            "a.jsonl",
            b'{"text": "a"}\n{"sentence1": "b", "sentence2": "c"}',
            "a.jsonl, line 2 has 2 texts and",
        ),
        ("a.txt", b"a\n", "a.txt ends in .txt; it must be .csv, .tsv or .jsonl"),
        ("a.json", b"{}", "run was fine-tuned on text-classification.)"),
    ],
)
def test_files_that_cannot_be_scored(name, content, says, classes, refused, tmp_path):
    (tmp_path / name).write_bytes(content)
    where = ("--model", str(classes), "--output", str(tmp_path / "out"))
    file = ("--input", str(tmp_path / name))
    assert says in refused("evaluate", *where, *file)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"one\n\ntwo\n", "a.txt, line 2: text is empty; write a text"),
        ("a", b"one\n{two}\n", "a, line 2 is not JSON"),
        ("a", b'one\n{"txt": "two"}\n', "a, line 2 has the columns txt; name"),
        (
            "a.txt",
            b"one\nt\xffwo\n",
            "a.txt, line 2: byte 0xff at 5 is not UTF-8; convert the file",
        ),
        (
            "a.csv",
            b"text\nt\xffwo\n",
            "a.csv, line 2: byte 0xff at 6 is not UTF-8; convert",
        ),
        ("a.csv", b"text\n", "a.csv has no rows"),
    ],
)
def test_files_that_cannot_be_answered(name, content, says, classes, refused, tmp_path):
    (tmp_path / name).write_bytes(content)
    where = ("--model", str(classes), "--input", str(tmp_path / name))
    assert says in refused("predict", *where)


def test_a_file_to_answer_that_is_not_there(classes, refused, tmp_path):
    for name in ("none.csv", "none.txt"):
        where = ("--model", str(classes), "--input", str(tmp_path / name))
        assert name in refused("predict", *where)


def test_no_examples_at_once(classes, refused):
    for file in (str(classes.parent / "all.csv"), os.devnull):
        where = ("--model", str(classes), "--input", file, "--batch-size", "0")
        assert "batch_size=0 must be at least 1" in refused("predict", *where)


def test_a_dry_run_of_fine_tuning(encoder_checkpoint, tmp_path, capsys):
    """What would be learned from and what it costs is said; nothing is written."""
    table = tmp_path / "train.csv"
    rows = [f"the king {'saw ' * (i % 5)},{i % 2}" for i in range(40)]
    table.write_text("\n".join(["text,label", *rows, "the ring,1.0"]) + "\n")
    arguments = ["finetune", "text-classification", "--data.train", str(table)]
    arguments += ["--init-from", str(encoder_checkpoint), "--mesh.data", "1"]
    assert main([*arguments, "--dry-run"]) == 0
    out = capsys.readouterr().out
    for line in (
        "Names of one class: '1.0' is '1'.",
        "classes (to learn from + to score on): ",
        "equal texts: ",
        "examples to learn from, ",
        "tokens of a row: ",
        "baseline: accuracy of the commonest label",
        "parameters: ",
        "memory a device: ",
        "in all: ",
        "--verbose",
    ):
        assert line in out
    assert re.search(r"time: \S+ s a step of the longest rows, the median of", out)
    assert [path.name for path in tmp_path.iterdir()] == ["train.csv"]


@pytest.mark.parametrize(
    ("words", "is_said"),
    [("--batch-size 4", True), ("--batch-size 4 --num-steps 3", False), ("", False)],
)
def test_steps_of_a_record_are_said_beside_another_batch_size(
    words, is_said, classes, caplog
):
    record = str(classes / "config.json")
    read_finetune(FinetuneOptions, [record, *words.split()], "finetune")
    line = f"num_steps=2 is that of {record}; --num-epochs counts"
    assert (line in caplog.text) == is_said


def test_a_runs_configuration_starts_another(classes, capsys):
    """What its task had set is set again; epochs that are named count."""
    command = ("finetune", str(classes / "config.json"), "--dry-run")
    out = ok(capsys, *command, "--num-epochs", "3", "--sweep")
    assert "runs: 18, 0 of them done; the first:" in out
    assert any(f"; {math.ceil(36 * 2 / 16)} steps of 16." in line for line in out)
    epochs = ok(capsys, *command, "--num-epochs", "3", "--print-config")
    assert json.loads("".join(epochs))["num_steps"] == 0
    swept = ok(capsys, *command, "--sweep", "--print-config")
    assert json.loads("".join(swept))["num_steps"] == 0
    other = json.loads(
        "".join(ok(capsys, *command, "--print-config", "--data.train=a"))
    )
    assert other["data"]["fingerprint"] == "" and other["model"]["labels"] == []


def test_a_sweep_keeps_the_steps_of_a_configuration_that_is_no_record(tmp_path, capsys):
    path = tmp_path / "own.json"
    path.write_text('{"task": "text-classification", "num_steps": 100}')
    swept = ok(capsys, "finetune", str(path), "--sweep", "--print-config")
    assert json.loads("".join(swept))["num_steps"] == 100


def test_a_table_in_another_script_is_refused(encoder_checkpoint, tmp_path, refused):
    table = tmp_path / "train.csv"
    rows = [f"Москва слова {i},{i % 2}" for i in range(40)]
    table.write_text("\n".join(["text,label", *rows]) + "\n", "utf-8")
    arguments = ["finetune", "text-classification", "--data.train", str(table)]
    arguments += ["--init-from", str(encoder_checkpoint), "--mesh.data", "1"]
    error = refused(*arguments, "--workdir", str(tmp_path / "run"))
    assert "train.csv: " in error and "[UNK]" in error and "--init-from" in error
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_pair_after_texts_is_refused_wherever_it_stands(classes, refused, tmp_path):
    """Rows are computed about a thousand at a time."""
    path, output = tmp_path / "a.jsonl", tmp_path / "out.jsonl"
    rows = [{"text": "The judge."}] * 1024 + [{"sentence1": "b", "sentence2": "c"}]
    path.write_text("\n".join(map(json.dumps, rows)))
    command = ("predict", str(classes), "--input", str(path), "--output", str(output))
    line = refused(*command)
    assert "line 1025 has 2 texts and" in line and "line 1 has 1; all rows must" in line
    assert not output.exists()
    assert main([*command, "--skip-damaged"]) == 0
    assert json.loads(output.read_text().splitlines()[-1])["label"] is None
