"""Files of predictions: `bert-jax predict --output`."""

import csv
import dataclasses
import itertools
import json
import re
import sys
import tracemalloc
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from small_world import SUBJECTS

from bert_jax.cli.main import main
from bert_jax.config import BertConfig
from bert_jax.inference.predictor import Predictor, load
from bert_jax.inference.row_predictions import Request, prediction_rows
from bert_jax.inference.thresholds import (
    apply_threshold,
    most_probable,
    require_threshold,
)
from bert_jax.tables.read import table_rows
from bert_jax.tables.write import write_rows

TEXTS = [f'The {SUBJECTS[i % 2]} reads "{i}", again.' for i in range(30)]
COLUMNS = ["id", "review", "who"]


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("table") / "all.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows((i, text, SUBJECTS[i % 2]) for i, text in enumerate(TEXTS))
    return path


@pytest.fixture(scope="module")
def model(classifier) -> Path:
    return classifier


def printed(capsys, model: Path, table: Path, *options: str) -> list[dict[str, Any]]:
    where = ("--model", str(model), "--input", str(table))
    assert main(["predict", *where, *options]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_only_a_terminal_is_told_how_far_it_is(model, table, monkeypatch, capsys):
    rows = printed(capsys, model, table)
    clock = types.SimpleNamespace(monotonic=itertools.count(0.0, 2.0).__next__)
    monkeypatch.setattr("bert_jax.terminal.progress.time", clock)
    where = ["--model", str(model), "--input", str(table)]
    for is_terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_it=is_terminal: is_it)
        assert main(["predict", *where]) == 0
        output, told = capsys.readouterr()
        assert [json.loads(line) for line in output.splitlines()] == rows
        line = r"30/30 rows, \d+/s, 0:00:00 left\n" if is_terminal else ""
        # The last one is on the small vocabulary.
        *told, unknown = told.splitlines(keepends=True)
        assert re.fullmatch(line, "".join(told)) and "[UNK]" in unknown


def written(model: Path, table: Path, output: Path, *options: str) -> Path:
    where = ("--model", str(model), "--input", str(table))
    assert main(["predict", *where, "--output", str(output), *options]) == 0
    return output


def test_each_kind_of_file_has_what_is_printed(model, table, capsys, tmp_path):
    expected = printed(capsys, model, table)
    lines = written(model, table, tmp_path / "a.jsonl").read_text().splitlines()
    assert "30 predictions of " in capsys.readouterr().out
    assert [json.loads(line) for line in lines] == expected
    flat = [
        {"id": row["id"], "label": row["label"]}
        | {f"probabilities.{k}": v for k, v in row["probabilities"].items()}
        for row in expected
    ]
    with written(model, table, tmp_path / "a.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert found == [{k: str(v) for k, v in row.items()} for row in flat]
    parquet = pq.read_table(written(model, table, tmp_path / "a.parquet"))
    assert parquet.to_pylist() == flat
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("a.csv", "a.jsonl", "a.parquet")
    ]


def test_a_saved_checkpoint_predicts_the_same(model, table, capsys, tmp_path):
    saved = load(model).save(tmp_path / "saved", to="checkpoint")
    assert load(saved).classify(TEXTS) == load(model).classify(TEXTS)
    assert printed(capsys, saved, table) == printed(capsys, model, table)
    assert load(saved).data == load(model).data


def test_few_rows_of_many_classes_are_in_memory(model, tmp_path):
    loaded, number = load(model), 50_000
    config = loaded.config.changed(labels=tuple(f"class {i}" for i in range(number)))
    kernel = np.zeros((config.hidden_size, number), np.float32)
    classifier = {"dense": {"kernel": kernel, "bias": kernel[0]}}
    params = loaded.params | {"classifier": classifier}
    saved = Predictor(config, params, loaded.tokenizer, data=loaded.data)
    saved.save(tmp_path / "saved", to="checkpoint")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS) + "\n")
    request = Request(str(tmp_path / "saved"), str(texts), loaded.data, 8, top_k=1)
    chunks = [len(rows) for rows in prediction_rows(request, lambda _: None)]
    assert chunks == [20, 10], "a million probabilities are 20 rows"


@pytest.mark.usefixtures("no_hidden_transfers")
@pytest.mark.parametrize("verb", ["predict", "predict_corpus", "evaluate", "features"])
def test_parameters_are_placed_on_the_device_once(verb, model, table, tmp_path):
    """Else a base model sends 440 MB with every batch (40 batches and more here)."""
    names, output = ("--model", str(model)), str(tmp_path / "output")
    small = ("--batch-size", "1")
    arguments = {
        "predict": [*names, "--input", str(table), "--output", f"{output}.jsonl"],
        "predict_corpus": [*names, "--input", str(table), "--output", output],
        "evaluate": [*names, "--input", str(table)],
        "features": ["--model", str(model), "--input", str(table)]
        + ["--output", f"{output}.jsonl"],
    }[verb]
    if verb != "evaluate":
        arguments += small
    assert main([verb.removesuffix("_corpus"), *arguments]) == 0


def test_columns_of_the_input_are_copied(model, table, capsys, refused, tmp_path):
    rows = printed(capsys, model, table, "--columns", "*")
    assert list(rows[0]) == [*COLUMNS, "label", "probabilities"]
    assert [row["review"] for row in rows] == TEXTS
    labelled = tmp_path / "labelled.csv"
    labelled.write_text("review,label\nThe judge reads.,mine\n")
    (row,) = printed(capsys, model, labelled, "--columns", "label")
    assert row["label"] == "mine" and row["predicted_label"] in SUBJECTS[:2]
    twice = tmp_path / "twice.csv"
    twice.write_text("review,label,predicted_label\nThe judge reads.,one,two\n")
    (row,) = printed(capsys, model, twice, "--columns", "*")
    assert (row["label"], row["predicted_label"]) == ("one", "two")
    assert row["predicted_predicted_label"] in SUBJECTS[:2]
    where = ["predict", "--model", str(model), "--input", str(labelled)]
    assert "Did you mean label?" in refused(*where, "--columns", "lable")


def test_a_threshold_decides_between_two_classes(model, table, capsys):
    rows = printed(capsys, model, table)
    second = sorted(SUBJECTS[:2])[1]
    values = sorted(row["probabilities"][second] for row in rows)
    for threshold in (0.0, values[10], 1.0):
        found = printed(capsys, model, table, "--threshold", repr(threshold))
        chosen = [row["probabilities"][second] >= threshold for row in rows]
        assert [row["label"] == second for row in found] == chosen


@pytest.mark.parametrize(
    "model",
    [
        BertConfig(head="sequence_classification", labels=("a", "b", "c")),
        BertConfig(head="sequence_classification", problem_type="regression"),
        BertConfig(head="token_classification", labels=("O", "B-A")),
    ],
)
def test_a_threshold_needs_two_classes_or_several_labels(model):
    with pytest.raises(ValueError, match="threshold=0.5 is for texts with two classes"):
        require_threshold(model, 0.5)


def test_a_threshold_of_labels_that_do_not_exclude_each_other():
    prediction = {"labels": ["a"], "probabilities": {"a": 0.7, "b": 0.3, "c": 0.2}}
    assert apply_threshold(prediction, 0.3)["labels"] == ["a", "b"]
    model = BertConfig(
        head="sequence_classification",
        labels=("a", "b", "c"),
        problem_type="multi_label_classification",
    )
    require_threshold(model, 0.5)


def test_an_error_on_the_way_leaves_no_file(model, tmp_path, refused):
    bad = tmp_path / "bad.csv"
    lines = [f"The judge reads {i}." for i in range(2000)]
    bad.write_text("\n".join(["review", *lines, '"not ended']))
    where = ["predict", "--model", str(model), "--input", str(bad)]
    assert "bad.csv, line 2002" in refused(*where, "--output", str(tmp_path / "a.csv"))
    assert list(tmp_path.iterdir()) == [bad]


@pytest.mark.parametrize("last", ["The judge reads.", None])
def test_a_column_of_several_types_is_refused_before_rows_are_computed(
    last, model, tmp_path, refused, caplog
):
    source = tmp_path / "a.jsonl"
    rows = [{"id": i, "review": "The judge reads."} for i in range(1100)]
    rows.append({"id": "x", "review": last})
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    where = ["predict", "--model", str(model), "--input", str(source)]
    where += ["--skip-damaged"] * (last is None)
    for output in (["a.parquet"], ["corpus", "--format", "parquet"]):
        place = [str(tmp_path / output[0]), *output[1:]]
        assert "of several types (" in refused(*where, "--output", *place)
    assert "/1,101 rows" not in caplog.text
    assert not list(tmp_path.glob("**/*.parquet"))


def test_a_column_of_several_types_needs_json(tmp_path):
    chunks = [[{"a": 1}], [{"a": "one"}]]
    assert write_rows(chunks, tmp_path / "a.jsonl") == 2
    with pytest.raises(ValueError, match="several types .*; write .jsonl"):
        write_rows(chunks, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="become the column 'b.c'; rename that"):
        write_rows([[{"b.c": 1, "b": {"c": 2}}]], tmp_path / "a.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_types_and_columns_of_later_rows(tmp_path):
    """Of a first chunk alone they would be whole numbers, lists of nothing and null."""
    first = {"n": 1, "labels": [], "x": None, "empty": {}}
    later = {"n": 1.5, "labels": ["a"], "x": "b", "new": True}
    chunks = [[first] * 3, [], [later]]
    assert write_rows(chunks, tmp_path / "a.parquet") == 4
    rows = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert rows[0] == {"n": 1.0, "labels": [], "x": None, "empty": None, "new": None}
    assert rows[3] == later | {"empty": None}
    assert write_rows(chunks, tmp_path / "a.csv") == 4
    assert (tmp_path / "a.csv").read_text() == (
        "n,labels,x,empty,new\n" + "1,[],,,\n" * 3 + '1.5,"[""a""]",b,,true\n'
    )


def test_row_groups_hold_many_chunks(tmp_path):
    chunks = [[{"n": i}] * 1000 for i in range(5)]
    assert write_rows(chunks, tmp_path / "a.parquet") == 5000
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 1


def test_any_text_is_read_back_from_csv(tmp_path):
    texts = ["a\rb", "a\r\nb", 'a "quoted", word', " a", "", "é\u2028\x85"]
    write_rows([[{"text": text, "n": 1} for text in texts]], tmp_path / "a.csv")
    rows = table_rows(str(tmp_path / "a.csv"))
    assert [row.values["text"] for row in rows] == texts


def test_an_error_of_the_input_is_not_one_of_the_output(model, tmp_path, refused):
    where = ["predict", "--model", str(model), "--input", "none.csv"]
    error = refused(*where, "--output", str(tmp_path / "a.csv"))
    assert "none.csv is not a file" in error and "full disk" not in error


@pytest.mark.parametrize(
    "suffix", [".csv", pytest.param(".jsonl", marks=pytest.mark.slow)]
)
def test_one_row_at_a_time_is_in_memory(suffix, tmp_path):
    path = tmp_path / f"long{suffix}"
    text = "word " * 100
    with path.open("w") as file:
        if suffix == ".csv":
            file.write("text\n")
        for _ in range(20_000):
            file.write(f"{text}\n" if suffix == ".csv" else f'{{"text": "{text}"}}\n')
    tracemalloc.start()
    count = sum(1 for _ in table_rows(str(path)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_000 and path.stat().st_size > 10_000_000
    assert peak < 500_000


def test_ends_of_lines_within_and_after_fields(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'\xef\xbb\xbftext,n\r\n"one\r\ntwo",1\r"three\n\nfour",2\n\nfive,3'
    )
    rows = list(table_rows(str(path)))
    texts = [row.values["text"] for row in rows]
    assert texts == ["one\r\ntwo", "three\n\nfour", "five"]
    assert [row.where.split()[-1] for row in rows] == ["2", "4", "8"]


def test_standard_output_is_named_by_a_hyphen(
    model, table, capsys, refused, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    expected = printed(capsys, model, table)
    assert printed(capsys, model, table, "--output", "-") == expected
    where = ["--model", str(model), "--input", str(table), "--output", "-"]
    for verb in ("embed", "features"):
        error = refused(verb, *where)
        assert f"output=- is standard output, to which {verb} does not write" in error
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_if_that_is_asked_for(model, table, refused, tmp_path):
    output = written(model, table, tmp_path / "a.jsonl")
    content = output.read_bytes()
    output.write_text("mine")
    where = ["predict", "--model", str(model), "--input", str(table)]
    assert "a.jsonl exists; pass --overwrite to replace it" in refused(
        *where, "--output", str(output)
    )
    assert output.read_text() == "mine"
    assert written(model, table, output, "--overwrite").read_bytes() == content
    text = tmp_path / "a.txt"
    text.write_text("The judge reads.\n")
    where = ["features", "--model", str(model), "--input", str(text)]
    assert "a.jsonl exists; pass --overwrite" in refused(
        *where, "--output", str(output)
    )
    assert main([*where[:-2], str(tmp_path / "out"), "--overwrite"]) == 2


@pytest.mark.parametrize(
    ("verb", "option", "value"),
    [
        ("predict", "labels", "a"),
        ("predict", "label-column", "text"),
        ("predict", "multi-label", None),
        ("predict", "balance", None),
        ("predict", "null-threshold", "1"),
        ("evaluate", "labels", "a"),
        ("evaluate", "num-buckets", "2"),
        ("evaluate", "document-stride", "64"),
        ("evaluate", "sentence-pairs.temperature", "0.1"),
    ],
)
def test_options_that_a_verb_does_not_use_are_refused(
    verb, option, value, model, table, capsys
):
    command = [verb, "--model", str(model)]
    command += [f"--data.{option}", *([value] if value else [])]
    assert (
        main([*command, "--input", str(table)] if verb == "predict" else command) == 2
    )
    *_, line = capsys.readouterr().err.splitlines()
    assert f"data.{option.replace('-', '_')}=" in line
    shown = option if option == "label-column" else f"data.{option}"
    assert f"not used by {verb}" in line and f"; leave --{shown} out." in line


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_parts_of_an_option_that_a_verb_does_not_use_are_refused(verb, model, refused):
    command = [verb, "--model", str(model), "--data.sentence-pairs.symmetric"]
    error = refused(*command)
    assert f"{verb}; leave --data.sentence-pairs.symmetric out." in error


def test_a_file_to_learn_from_is_no_file_to_score(model, table, refused):
    error = refused("evaluate", str(model), "--data.train", "a.csv")
    assert "is not used by evaluate; name the file by --input." in error


@pytest.mark.parametrize("options", ["--data.multi-label", "--label-column a b"])
def test_several_classes_of_a_model_of_one_are_refused(options, model, table, refused):
    error = refused("evaluate", model, "--input", table, *options.split())
    assert "problem_type=single_label_classification. Name one --label-column" in error


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_rows_that_are_longer_than_the_model_takes_are_refused(
    verb, model, table, refused
):
    error = refused(verb, model, "--input", table, "--data.max-length", "5000")
    assert "data.max_length=5000 but the model has 32 positions; pass at most" in error


def test_options_with_the_value_of_the_checkpoint_are_taken(model, table, capsys):
    printed(capsys, model, table, "--label-column", "who")


def test_texts_that_are_cut_are_counted(model, table, capsys, tmp_path):
    long = tmp_path / "long.csv"
    text = "The judge reads again. " * 40
    long.write_text("review,who\n" + f"{text},judge\nshort,judge\n" * 100)
    line = "cut to 32 tokens: 100 of 200 texts (50.0%); the model takes no more"
    where = ("--model", str(model))
    for command in (
        ["predict", *where, "--input", str(long)],
        ["predict", *where, "--input", str(long), "--output", str(tmp_path / "out")],
        ["evaluate", *where, "--input", str(long)],
    ):
        assert main(command) == 0
        assert capsys.readouterr().err.count(line) == 1
    embed = ["embed", "--model", str(model), "--text-column", "review"]
    assert main([*embed, "--input", str(long), "--output", str(tmp_path / "v")]) == 0
    assert capsys.readouterr().err.count(f"long.csv: {line}") == 1
    load(model).classify([text, "short"])
    assert "cut to 32 tokens: 1 of 2 texts (50.0%)" in capsys.readouterr().err
    assert main([*command, "--data.max-length", "16"]) == 0
    assert "; --data.max-length raises it, up to 32" in capsys.readouterr().err


def test_unknown_tokens_are_counted(model, capsys, tmp_path):
    """Without [CLS] and [SEP]: as many as fine-tuning would say."""
    path = tmp_path / "ru.csv"
    for text, share in (("Привет мир", "100.0%"), ("The judge reads. Привет", "20.0%")):
        path.write_text("review,who\n" + f"{text},judge\n" * 3)
        line = f"ru.csv: [UNK] is {share} of the tokens, by 100% unknown characters"
        for verb, option in (("predict", "--input"), ("evaluate", "--input")):
            assert main([verb, "--model", str(model), option, str(path)]) == 0
            assert capsys.readouterr().err.count(line) == 1


def test_the_most_probable_classes_alone():
    model = BertConfig(head="sequence_classification", labels=("a", "b", "c"))
    values = {"a": 0.2, "b": 0.6, "c": 0.2}
    predictions = [{"label": "b", "probabilities": values}]
    [best] = most_probable(model, predictions, 2)
    assert list(best["probabilities"].items()) == [("b", 0.6), ("a", 0.2)]
    assert most_probable(model, predictions, 0) == predictions
    assert most_probable(model, predictions, 9) == predictions
    assert most_probable(model, predictions, np.int64(2)) == [best]
    for k in (1.5, "a", -1):
        with pytest.raises(ValueError, match=f"top_k={k!r} must be a number of class"):
            most_probable(model, predictions, k)
    other = dataclasses.replace(model, problem_type="regression")
    with pytest.raises(ValueError, match="top_k=1 is for classes of texts"):
        most_probable(other, predictions, 1)


def test_predictions_of_the_best_class(model, table, capsys, tmp_path):
    rows = printed(capsys, model, table, "--top-k", "1")
    assert all(list(row["probabilities"]) == [row["label"]] for row in rows)
    values = load(model).classify(TEXTS, top_k=1)
    assert [value["label"] for value in values] == [row["label"] for row in rows]
    assert all(len(value["probabilities"]) == 1 for value in values)
    output = tmp_path / "out"
    written(model, table, output, "--top-k", "1", "--columns", "id")
    found = [json.loads(line) for line in (output / "all.jsonl").open()]
    assert found == rows
