"""Classes and numbers of texts: examples, losses, predictions, scores, files."""

import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.tables.rows import TableRow
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tasks.predictions import Predictions, Split, SplitOutputs, Splits
from bert_jax.tasks.texts.examples import TextExample, find_text_columns
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

SINGLE, MULTI, NUMBER = (
    BertConfig.tiny(head="sequence_classification", labels=labels, problem_type=kind)
    for labels, kind in (
        (("bad", "fair", "good"), "single_label_classification"),
        (("bad", "fair", "good"), "multi_label_classification"),
        (("stars",), "regression"),
    )
)
DEFAULT = ExamplesConfig()


def task(model=SINGLE, data=DEFAULT):
    return finetuning_task(
        "text-regression" if model is NUMBER else "text-classification", data, model
    )


def read(tmp_path, name, text, model=SINGLE, **options):
    path = tmp_path / name
    path.write_text(text)
    return task(model, ExamplesConfig(**options)).read(str(path))


def test_texts_and_labels_of_a_table(tmp_path):
    examples = read(tmp_path, "a.csv", "text,label\na b,good\nc,1\n")
    assert [(example.texts, example.label) for example in examples] == [
        (("a b",), "good"),
        (("c",), "1"),
    ]
    assert examples[1].where.endswith("a.csv, line 3")


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        ("id text label", ("text",)),
        ("sentence label", ("sentence",)),
        ("sentence1 sentence2 label", ("sentence1", "sentence2")),
        ("premise hypothesis label", ("premise", "hypothesis")),
        ("question1 question2", ("question1", "question2")),
        ("index question sentence label", ("question", "sentence")),
    ],
)
def test_columns_with_usual_names_are_found(columns, chosen):
    row = TableRow(dict.fromkeys(columns.split(), "x"), "f, line 2")
    assert find_text_columns(row, DEFAULT) == chosen


def test_columns_that_are_named_or_the_tasks_own():
    row = TableRow(dict.fromkeys(("#1 String", "#2 String", "text"), "x"), "f, line 2")
    assert find_text_columns(row, ExamplesConfig(glue="mrpc")) == (
        "#1 String",
        "#2 String",
    )
    assert find_text_columns(row, ExamplesConfig(text_columns=("a", "b"))) == ("a", "b")
    with pytest.raises(ValueError, match="line 2 has the columns a, b; name those"):
        find_text_columns(TableRow({"a": "", "b": ""}, "f, line 2"), DEFAULT)


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ({"text": "a", "label": ""}, {}, "line 1: label is empty; fill it in, or"),
        ({"text": "a", "label": None}, {}, "line 1: label is empty"),
        ({"text": " ", "label": "b"}, {}, "line 1: text is empty"),
        ({"text": "a", "label": ["b"]}, {}, r"label=\['b'\] must be a single class; f"),
        ({"text": "a"}, {"text_columns": ("body",)}, "line 1 has no body; its columns"),
        (
            {"text": "a", "label": "b"},
            {"label_column": "text"},
            "line 1: text is named for the text and for the labels",
        ),
    ],
)
def test_refused_rows(fields, options, message, tmp_path):
    if "line" in message:
        message = f"a.jsonl, {message}"
    with pytest.raises(ValueError, match=message):
        read(tmp_path, "a.jsonl", json.dumps(fields), **options)


@pytest.mark.parametrize("value", ["three", "nan", "inf", "1,5"])
def test_labels_that_are_no_numbers(value, tmp_path):
    text = json.dumps({"text": "a", "label": value})
    with pytest.raises(ValueError, match=f"line 1: label='{value}' must be a finite"):
        read(tmp_path, "a.jsonl", text, NUMBER)


def of(*labels: Any) -> list[TextExample]:
    return [
        TextExample(("a",), label, f"f, line {i}") for i, label in enumerate(labels, 2)
    ]


def test_classes_are_inferred_or_given():
    def labels(*values, **options):
        return task(data=ExamplesConfig(**options)).labels(of(*values))

    assert labels("b", "a", "b") == ("a", "b")
    assert labels("b", "a", "b", labels=("z", "b", "a")) == ("z", "b", "a")
    assert labels(("b",), (), ("a", "b"), multi_label=True) == ("a", "b")
    # One class alone, or none, is a choice.
    assert labels(("b",), (), multi_label=True) == ("b",)
    assert task(NUMBER).labels(of(1.0, 2.0)) == ("label",)


@pytest.mark.parametrize(
    ("model", "labels", "options", "message"),
    [
        (SINGLE, ["a", None], {}, "f, line 3 has no label. Name the col"),
        (SINGLE, ["a"] * 3, {}, "f, line 2: label is 'a' in all 3 rows"),
        (SINGLE, ["a", "b"], {"labels": ("a",)}, "names only 'a'; there"),
        (MULTI, [(), ()], {"multi_label": True}, "any other row names a"),
        (NUMBER, [2.0, 2.0], {}, "f, line 2: label is 2.0 in all 2 rows"),
        (NUMBER, [2.0, None], {}, "f, line 3 has no label"),
    ],
)
def test_labels_that_nothing_can_be_learned_from(model, labels, options, message):
    with pytest.raises(ValueError, match=message):
        task(model, ExamplesConfig(**options)).labels(of(*labels))


def test_a_class_that_the_model_lacks():
    message = (
        r"f, line 3: 'great' is none of the classes that the model has \(bad, fair"
    )
    for model, label in ((SINGLE, "great"), (MULTI, ("bad", "great"))):
        with pytest.raises(ValueError, match=message):
            task(model).check(of("bad", label))
    task(SINGLE).check(of("bad", None))
    task(NUMBER).check(of(1.0, 2.0))


def test_several_classes_are_joined_or_listed(tmp_path):
    bars = read(tmp_path, "a.csv", "text,label\na,x|y\nb,\nc,y\n", multi_label=True)
    assert [example.label for example in bars] == [("x", "y"), (), ("y",)]
    commas = read(
        tmp_path,
        "b.tsv",
        "text\tlabel\na\tx,y\n",
        multi_label=True,
        label_separator=",",
    )
    assert commas[0].label == ("x", "y")
    lines = '{"text": "a", "label": ["x|y", "z"]}\n{"text": "b", "label": []}'
    lists = read(tmp_path, "c.jsonl", lines, multi_label=True)
    assert [example.label for example in lists] == [("x|y", "z"), ()]


def test_a_row_to_predict_needs_no_label():
    """The column of the label is not read, whatever it holds."""
    for label in ("", None, "unheard of", ["a"], 3):
        row = TableRow({"text": "a", "label": label}, "f, line 2")
        for model in (SINGLE, NUMBER):
            example = task(model).example_without_label(row)
            assert example == TextExample(("a",), None, "f, line 2")
            assert not task(model).has_label(example)


TOKENIZER = Tokenizer(
    {"kind": "wordpiece", "cased": False},
    "\n".join([*SPECIAL_TOKENS, *"abcd"]).encode(),
)


def tokenize(examples, model=SINGLE, **options):
    return task(model, ExamplesConfig(**options)).tokenize(examples, TOKENIZER)


def readable(tokenized, row):
    part = slice(tokenized.starts[row], tokenized.starts[row + 1])
    return " ".join(TOKENIZER.tokens(tokenized.tokens[part]))


def test_rows_of_single_texts_and_of_pairs():
    single = tokenize([TextExample(("a b",), "good"), TextExample(("c",), "bad")])
    rows = [readable(single, i) for i in (0, 1)]
    assert rows == ["[CLS] a b [SEP]", "[CLS] c [SEP]"]
    assert single.by_example["label"].tolist() == [2, 0]
    assert single.example.tolist() == [0, 1]
    pair = tokenize([TextExample(("a b c d a b", "c d"))], max_length=8)
    assert readable(pair, 0) == "[CLS] a b c [SEP] c d [SEP]"
    assert pair.second.tolist() == [5] and "label" not in pair.by_example


def test_rows_are_no_longer_than_the_model():
    short = BertConfig.tiny(max_position_embeddings=9)
    assert tokenize([TextExample(("a b c d " * 9,))], short).lengths.tolist() == [9]


def test_cut_texts_are_counted():
    examples = [TextExample(("a b c d a b c",)), TextExample(("c",))]
    own = task(data=ExamplesConfig(max_length=8))
    split = Split(examples, own.tokenize(examples, TOKENIZER))
    assert own.warnings(split) == [
        "cut to 8 tokens: 1 of 2 texts (50.0%); --data.max-length raises it, up to 512"
    ]
    short = Split(examples[1:], own.tokenize(examples[1:], TOKENIZER))
    assert own.warnings(short) == []


def test_pairs_among_single_texts_are_refused():
    mixed = [TextExample(("a",), where="f, 1"), TextExample(("a", "b"), where="f, 2")]
    for examples in (mixed, mixed[::-1]):
        with pytest.raises(ValueError, match=r"f, \d has . texts and f, \d has .; all"):
            tokenize(examples)


def test_labels_of_each_kind():
    classes = tokenize(of(("good", "bad"), (), ("fair",)), MULTI).by_example["label"]
    assert classes.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    numbers = tokenize(of(1.5, -2.0), NUMBER).by_example["label"]
    assert numbers.tolist() == [1.5, -2.0] and numbers.dtype == np.float32


def loss(model, scores, labels):
    """The total and the count, which does not depend on the scores."""
    batch = {"label": jnp.array(labels)}
    total, count = task(model).label_loss(jnp.array(scores, jnp.float32), batch)
    assert task(model).label_count(batch) == count
    return float(total), float(count)


def test_cross_entropy_by_hand():
    scores = [[np.log(2), 0.0, 0.0], [0.0, 0.0, np.log(6)], [9.0, 9.0, 9.0]]
    total, count = loss(SINGLE, scores, [0, 1, -1])
    assert total == pytest.approx(np.log(2) + np.log(8))  # of 2 in 4, and of 1 in 8
    assert count == 2, "padding does not count"


def test_each_class_by_itself_by_hand():
    scores = [[0.0, np.log(3), -np.log(3)], [5.0, 5.0, 5.0]]
    total, count = loss(MULTI, scores, [[1, 1, 1], [-1, -1, -1]])
    assert total == pytest.approx(np.log(2) + np.log(4 / 3) + np.log(4))
    assert count == 3, "a decision for each class"


def test_squared_error_by_hand():
    total, count = loss(NUMBER, [[1.0], [3.0], [7.0]], [2.5, 3.0, np.nan])
    assert (total, count) == (2.25, 2)


def predict(model, scores):
    values = task(model).outputs(jnp.array(scores, jnp.float32))["values"]
    examples = [TextExample(("a",))] * len(values)
    split = Split(examples, tokenize(examples))
    rows = [{"values": np.asarray(row)} for row in values]
    return task(model).predict(SplitOutputs(split, rows))


def test_predictions_by_hand():
    (single,) = predict(SINGLE, [[0.0, np.log(2), np.log(5)]])
    assert single["label"] == "good" and list(single) == ["label", "probabilities"]
    assert single["probabilities"] == pytest.approx(
        {"bad": 1 / 8, "fair": 2 / 8, "good": 5 / 8}
    )
    some, none = predict(MULTI, [[np.log(3), -1.0, 0.1], [-1.0, -2.0, -3.0]])
    assert some["labels"] == ["bad", "good"] and none["labels"] == []
    assert some["probabilities"]["bad"] == pytest.approx(0.75)
    assert predict(NUMBER, [[-3.5]]) == [{"value": -3.5}]
    json.dumps([single, some])  # plain values


def test_scores_against_scikit_learn():
    generator = np.random.default_rng(0)
    gold, predicted = generator.choice(SINGLE.labels, (2, 50)).tolist()
    values = [{"label": label} for label in predicted]
    scores = task(SINGLE).official_scores(Predictions(of(*gold), values))
    assert scores == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(gold, predicted),
            "macro_f1": metrics.f1_score(gold, predicted, average="macro"),
            "mcc": metrics.matthews_corrcoef(gold, predicted),
        }
    )
    assert next(iter(scores)) == "accuracy", "what the best checkpoint is chosen by"


def test_scores_of_several_classes_against_scikit_learn():
    generator = np.random.default_rng(0)
    gold, predicted = generator.integers(0, 2, (2, 50, 3)).astype(bool)
    names = np.array(MULTI.labels)
    examples = of(*(tuple(names[row]) for row in gold))
    values = [{"labels": names[row].tolist()} for row in predicted]
    assert task(MULTI).official_scores(Predictions(examples, values)) == pytest.approx(
        {
            "micro_f1": metrics.f1_score(gold, predicted, average="micro"),
            "macro_f1": metrics.f1_score(gold, predicted, average="macro"),
            "exact_match": metrics.accuracy_score(gold, predicted),
        }
    )


def test_scores_of_numbers():
    values = [{"value": value} for value in (2.0, 4.0, 8.0)]
    scores = task(NUMBER).official_scores(Predictions(of(1.0, 2.0, 4.0), values))
    assert scores == pytest.approx(
        {"pearson": 1.0, "spearman": 1.0, "mean_squared_error": 7.0}
    )


def test_files_of_predictions(tmp_path):
    """Probability, label and text stand beside a prediction."""

    def written(examples, values, model, data=DEFAULT):
        names = task(model, data).write(Predictions(examples, values), tmp_path)
        assert names == ["predictions.tsv"]
        content = (tmp_path / "predictions.tsv").read_text("utf-8")
        return [line.split("\t") for line in content.removesuffix("\n").split("\n")]

    texts = [TextExample(('a "b"\r\nc\td',), "bad"), TextExample(("é",), "schön")]
    single = [
        {"label": "bad", "probabilities": {"bad": 0.75, "schön": 0.25}},
        {"label": "bad", "probabilities": {"bad": 0.625, "schön": 0.375}},
    ]
    assert written(texts, single, SINGLE) == [
        ["index", "prediction", "probability", "label", "text"],
        ["0", "bad", "0.75", "bad", 'a "b" c d'],
        ["1", "bad", "0.625", "schön", "é"],
    ]
    several = [
        {"labels": ["bad", "good"], "probabilities": {"bad": 0.75, "good": 0.625}},
        {"labels": [], "probabilities": {"bad": 0.25, "good": 0.125}},
    ]
    pairs = [TextExample(("a", "b"), ("good", "bad")), TextExample(("c", "d"), ())]
    config = ExamplesConfig(multi_label=True, label_separator=", ")
    assert written(pairs, several, MULTI, config) == [
        ["index", "prediction", "probability", "label", "text_1", "text_2"],
        ["0", "bad, good", "0.75, 0.625", "good, bad", "a", "b"],
        ["1", "", "", "", "c", "d"],
    ]
    numbers = [TextExample(("a",)), TextExample(("b",))]
    assert written(numbers, [{"value": 1.23456}, {"value": -2.0}], NUMBER) == [
        ["index", "prediction", "text"],
        ["0", "1.2346", "a"],
        ["1", "-2.0000", "b"],
    ]
    far = TextExample(("a",), 1_700_000_001.5)
    written_number = written([far], [{"value": 1_700_000_002.25}], NUMBER)[1]
    assert written_number == ["0", "1700000002.25", "1700000001.5", "a"]


def test_baselines():
    splits = Splits(of("a", "b", "b"), of("b", "a", "b", "c"))
    name, value = task(SINGLE).baseline(splits)
    assert (name, value) == ("accuracy of the commonest label", 0.5)
    assert task(NUMBER).baseline(Splits(of(1.0), of(3.0, 5.0)))[1] == 1.0
    # The commonest label of those to score, whatever was learned from.
    assert task(SINGLE).baseline(Splits([], of("b", "a", "a", "a")))[1] == 0.75
    gold = of(("bad",), ("good", "bad"), ("bad",))
    name, value = task(MULTI).baseline(Splits(gold, gold))
    assert name == "micro_f1 of the commonest labels"
    assert value == pytest.approx(2 * 3 / (3 + 4))
    sets = [("bad", "good")] * 2 + [("good", "bad")] * 2 + [("fair",)] * 3
    for own in (sets, [tuple(sorted(one)) for one in sets]):
        _, value = task(MULTI).baseline(Splits([], of(*own)))
        assert value == pytest.approx(22 / 32), "the best constant: all three"
    sparse = [()] * 4 + [("good",)] * 3
    assert task(MULTI).baseline(Splits([], of(*sparse)))[1] == pytest.approx(0.6)


def test_the_repr_of_an_example_has_its_content_and_not_its_place():
    """So that a file may be moved between two parts of a run."""
    one, other = (TextExample(("a",), "b", where) for where in ("f, 1", "g, 9"))
    assert repr(one) == repr(other) and repr(one) != repr(TextExample(("c",), "b"))
