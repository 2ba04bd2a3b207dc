"""How files write classes: lists, numbers, columns of 0 and 1, and similar names."""

import json
import re
import shlex

import pytest

from bert_jax.config import BertConfig, ExamplesConfig, FinetuneConfig
from bert_jax.config.serialization import from_dict, to_dict
from bert_jax.tasks.class_names import unknown_class_message
from bert_jax.tasks.kinds import finetuning_task

HEAD = {"head": "sequence_classification"}


def read(path, rows, **options):
    """The examples of rows of JSON, or of a cell of a table a line."""
    if isinstance(rows, str):
        path = path / "a.tsv"
        path.write_text(
            "text\tlabel\n" + "".join(f"a\t{c}\n" for c in rows.split("\n"))
        )
    else:
        path = path / "a.jsonl"
        path.write_text("\n".join(json.dumps({"text": "a"} | row) for row in rows))
    task = finetuning_task("text-classification", ExamplesConfig(**options))
    return task, task.read(str(path))


def labels_of(examples):
    return [example.label for example in examples]


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("a|b", ("a", "b")),
        ('["a", "b"]', ("a", "b")),
        ("['a', 'b']", ("a", "b")),
        ("['a' 'b']", ("a", "b")),  # as NumPy prints an array
        ("('a', 'b')", ("a", "b")),
        ("{'a', 'b'}", ("a", "b")),
        (r"""["it's", 'say "so"', 'it\'s']""", ("it's", 'say "so"', "it's")),
        ('["é", "\\u00e9t\\u00e9"]', ("é", "été")),
        ("[1, 2]", ("1", "2")),
        ("[]", ()),
        ("set()", ()),
        ("", ()),
        ('["a|b"]', ("a|b",)),
        ("[urgent]", ("[urgent]",)),  # a name in brackets
        ("(adult)", ("(adult)",)),
    ],
)
def test_a_list_in_a_cell(cell, names, tmp_path):
    _, examples = read(tmp_path, cell, multi_label=True)
    assert labels_of(examples) == [names]


@pytest.mark.parametrize("value", [[["a"]], [None], {"a": 1}])
def test_what_is_no_list_of_names(value, tmp_path):
    with pytest.raises(
        ValueError, match="line 1: label=.* must be the name of a class"
    ):
        read(tmp_path, [{"label": value}], multi_label=True)


@pytest.mark.parametrize(
    ("cells", "options", "message"),
    [
        ("a,b\nb\na", {"multi_label": True}, "pass --data.label-separator ','"),
        ("a;b\nb\na", {}, "pass --data.multi-label --data.label-separator ';'"),
        ("a|b\nb\na", {}, "hold '|', such as 'a|b'; .* pass --data.multi-label."),
        ("['a']\n['b']", {}, "2 of 2 .* hold brackets, .*lists .* --data.multi-label"),
        (
            "[a]\nb",
            {"multi_label": True},
            "1 of 2 .* brackets, .* write a list as JSON",
        ),
    ],
)
def test_names_that_look_like_lists_are_said(cells, options, message, tmp_path):
    task, examples = read(tmp_path, cells, **options)
    labels = task.labels(examples)
    model = BertConfig.tiny(**HEAD, labels=labels)
    task = finetuning_task("text-classification", task.data, model)
    lines = task.label_warnings(examples)
    pattern = message.replace("|", "[|]")
    assert any(re.search(pattern, line) for line in lines), lines


def matched(tmp_path, train, other, **options):
    """The classes of a training file, and the labels of another by their names."""
    task, examples = read(tmp_path, train, **options)
    labels = task.labels(examples)
    model = BertConfig.tiny(**HEAD, labels=labels)
    task = finetuning_task("text-classification", task.data, model)
    _, others = read(tmp_path, other, **options)
    return labels, labels_of(task.match_labels(others))


@pytest.mark.parametrize(
    ("train", "other", "labels", "names"),
    [
        ("0\n1\n1.0", "0.0\n1.00\n 1", ("0", "1"), ["0", "1", "1"]),
        ("0.0\n1.0", "0\n1", ("0.0", "1.0"), ["0.0", "1.0"]),
        ("-1\n0.5", "-1.0\n0.50", ("-1", "0.5"), ["-1", "0.5"]),
        ("01\n1\n001", "1.0\n01", ("001", "01", "1"), ["1", "01"]),
        ("True\nFalse", "true\nFALSE", ("False", "True"), ["True", "False"]),
        (
            [{"label": 0}, {"label": 1.0}, {"label": 1}],
            [{"label": "1"}, {"label": 0.0}],
            ("0", "1"),
            ["1", "0"],
        ),
        ([{"label": True}, {"label": False}], "true\nfalse", ("False", "True"), None),
    ],
)
def test_equal_numbers_are_one_class(train, other, labels, names, tmp_path):
    found, matches = matched(tmp_path, train, other)
    assert found == labels
    assert matches == (names or ["True", "False"])


def test_joined_numbers_are_said_and_can_be_kept_apart(tmp_path):
    task, examples = read(tmp_path, "1.1\n1.10\n2")
    model = BertConfig.tiny(**HEAD, labels=task.labels(examples))
    joined = finetuning_task("text-classification", task.data, model)
    (line,) = joined.label_warnings(examples)
    assert "'1.10' is '1.1'" in line and "--data.labels" in line
    names = ("1.1", "1.10", "2")
    labels, matches = matched(tmp_path, "1.1\n1.10\n2", "1.10\n1.1", labels=names)
    assert (labels, matches) == (names, ["1.10", "1.1"])


def test_similar_names_are_merged_if_asked(tmp_path):
    cells = "Good\ngood \ngood \nbad"
    assert matched(tmp_path, cells, "bad")[0] == ("Good", "bad", "good ")
    merged = matched(tmp_path, cells, "GOOD\nbad", merge_labels=True)
    assert merged == (("bad", "good "), ["good ", "bad"])
    with pytest.raises(ValueError, match="pass --data.merge-labels to take it for 'go"):
        matched(tmp_path, "good\nbad", "GOOD")


def test_columns_of_0_and_1(tmp_path):
    columns = ("toxic", "rude", "threat")
    rows = [
        {"toxic": 1, "rude": "0.0", "threat": False},
        {"toxic": "true", "rude": True, "threat": 1.0},
        {"toxic": 0, "rude": "0", "threat": 0},
    ]
    task, examples = read(tmp_path, rows, label_column=columns)
    assert labels_of(examples) == [("toxic",), columns, ()]
    assert task.data.multi_label
    # Classes have the order of the columns, also those without an example.
    assert task.labels(examples[:1]) == columns
    with pytest.raises(ValueError, match="line 2: rude=2 must be 0 or 1"):
        read(tmp_path, [rows[0], rows[0] | {"rude": 2}], label_column=columns)
    with pytest.raises(ValueError, match="line 1: rude=None must be 0 or 1"):
        read(tmp_path, [rows[0] | {"rude": None}], label_column=columns)
    with pytest.raises(ValueError, match="line 1 has no insult; its columns are"):
        read(tmp_path, rows, label_column=("toxic", "insult"))
    unlabelled = read(tmp_path, [{}], label_column=columns)[1]
    assert labels_of(unlabelled) == [None]


def test_a_column_in_a_configuration_of_an_older_run():
    old = to_dict(FinetuneConfig(data=ExamplesConfig(label_column="who")))
    assert old["data"]["label_column"] == "who"
    assert from_dict(FinetuneConfig, old).data.label_columns == ("who",)
    new = to_dict(FinetuneConfig(data=ExamplesConfig(label_column=("a", "b"))))
    assert from_dict(FinetuneConfig, new).data.label_columns == ("a", "b")
    for columns, message in ((("a", "a"), "several different"), ((), "one column")):
        with pytest.raises(ValueError, match=message):
            ExamplesConfig(label_column=columns)
    with pytest.raises(ValueError, match="no effect with task=text-regression"):
        FinetuneConfig(
            task="text-regression", data=ExamplesConfig(label_column=("a", "b"))
        )


def test_the_classes_of_an_imported_model_get_names(tmp_path):
    model = BertConfig.tiny(**HEAD, labels=("LABEL_0", "LABEL_1"))
    _, examples = read(tmp_path, "bad\ngood")
    task = finetuning_task("text-classification", ExamplesConfig(), model)
    with pytest.raises(ValueError, match="name them by --data.label-names LABEL_0=bad"):
        task.match_labels(examples)
    data = ExamplesConfig(label_names=("LABEL_0=bad", "LABEL_1=good"))
    task = finetuning_task("text-classification", data, model)
    assert labels_of(task.match_labels(examples)) == ["bad", "good"]
    # A checkpoint that was fine-tuned with the option has the names already.
    assert finetuning_task("text-classification", data, task.model).model == task.model
    wrong = ExamplesConfig(label_names=("LABEL_2=bad",))
    with pytest.raises(
        ValueError, match="label_names has 'LABEL_2=bad', .* LABEL_0, LAB"
    ):
        finetuning_task("text-classification", wrong, model)


def test_the_option_that_names_a_class_can_be_pasted():
    message = unknown_class_message("a.csv, line 2", "it's so", ["LABEL_0", "LABEL_1"])
    _, command = message.split(" by ")
    assert shlex.split(command)[:2] == ["--data.label-names", "LABEL_0=it's so"]
