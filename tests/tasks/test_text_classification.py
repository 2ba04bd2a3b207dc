"""Classes and numbers of texts: records, losses, predictions, scores, files."""

import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.tasks.tables import Row
from bert_jax.tasks.text_classification import TEXT_CLASSIFICATION, TEXT_REGRESSION
from bert_jax.tasks.texts import TextRecord, columns_of
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

SINGLE, MULTI, NUMBER = (
    BertConfig.tiny(head="sequence_classification", labels=labels, problem_type=kind)
    for labels, kind in (
        (("bad", "fair", "good"), "single_label_classification"),
        (("bad", "fair", "good"), "multi_label_classification"),
        (("stars",), "regression"),
    )
)
USUAL = ExamplesConfig()


def records(tmp_path, name, text, problem=TEXT_CLASSIFICATION, **options):
    path = tmp_path / name
    path.write_text(text)
    return problem.read(str(path), ExamplesConfig(**options))


def test_texts_and_labels_of_a_table(tmp_path):
    found = records(tmp_path, "a.csv", "text,label\na b,good\nc,1\n")
    assert [(each.texts, each.label) for each in found] == [
        (("a b",), "good"),
        (("c",), "1"),
    ]
    assert found[1].where.endswith("a.csv, line 3")


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
    row = Row(dict.fromkeys(columns.split(), "x"), "f, line 2")
    assert columns_of(row, USUAL) == chosen


def test_columns_that_are_named_or_the_tasks_own():
    row = Row(dict.fromkeys(("#1 String", "#2 String", "text"), "x"), "f, line 2")
    assert columns_of(row, ExamplesConfig(glue="mrpc")) == ("#1 String", "#2 String")
    assert columns_of(row, ExamplesConfig(text_columns=("a", "b"))) == ("a", "b")
    with pytest.raises(ValueError, match="line 2 has the columns a, b; say which hold"):
        columns_of(Row({"a": "", "b": ""}, "f, line 2"), USUAL)


@pytest.mark.parametrize(
    ("fields", "options", "says"),
    [
        ({"text": "a", "label": ""}, {}, "line 1: label is empty; fill it in, or"),
        ({"text": "a", "label": None}, {}, "line 1: label is empty"),
        ({"text": " ", "label": "b"}, {}, "line 1: text is empty"),
        ({"text": "a", "label": ["b"]}, {}, r"label=\['b'\] must be a single class; s"),
        ({"text": "a"}, {"text_columns": ("body",)}, "line 1 has no body; its columns"),
        (
            {"text": "a", "label": "b"},
            {"label_column": "text"},
            "line 1: text is named for the text and for the labels",
        ),
    ],
)
def test_refused_rows(fields, options, says, tmp_path):
    with pytest.raises(
        ValueError, match=f"a.jsonl, {says}" if "line" in says else says
    ):
        records(tmp_path, "a.jsonl", json.dumps(fields), **options)


@pytest.mark.parametrize("value", ["three", "nan", "inf", "1,5"])
def test_labels_that_are_no_numbers(value, tmp_path):
    text = json.dumps({"text": "a", "label": value})
    with pytest.raises(ValueError, match=f"line 1: label='{value}' must be a finite"):
        records(tmp_path, "a.jsonl", text, TEXT_REGRESSION)


def of(*labels: Any) -> list[TextRecord]:
    return [
        TextRecord(("a",), label, f"f, line {i}") for i, label in enumerate(labels, 2)
    ]


def test_classes_are_inferred_or_given():
    labels = TEXT_CLASSIFICATION.labels
    assert labels(of("b", "a", "b"), USUAL) == ("a", "b")
    given = ExamplesConfig(labels=("z", "b", "a"))
    assert labels(of("b", "a", "b"), given) == ("z", "b", "a")
    multi = ExamplesConfig(multi_label=True)
    assert labels(of(("b",), (), ("a", "b")), multi) == ("a", "b")
    assert labels(of(("b",), ()), multi) == ("b",), "one class, or none, is a choice"
    assert TEXT_REGRESSION.labels(of(1.0, 2.0), USUAL) == ("label",)


@pytest.mark.parametrize(
    ("problem", "labels", "options", "says"),
    [
        (TEXT_CLASSIFICATION, ["a", None], {}, "f, line 3 has no label. Name the col"),
        (TEXT_CLASSIFICATION, ["a"] * 3, {}, "f, line 2: label is 'a' in all 3 rows"),
        (TEXT_CLASSIFICATION, ["a", "b"], {"labels": ("a",)}, "names 'a' alone; there"),
        (TEXT_CLASSIFICATION, [(), ()], {"multi_label": True}, "any other row names a"),
        (TEXT_REGRESSION, [2.0, 2.0], {}, "f, line 2: label is 2.0 in all 2 rows"),
        (TEXT_REGRESSION, [2.0, None], {}, "f, line 3 has no label"),
    ],
)
def test_labels_that_nothing_can_be_learned_from(problem, labels, options, says):
    with pytest.raises(ValueError, match=says):
        problem.labels(of(*labels), ExamplesConfig(**options))


def test_a_class_that_the_model_lacks():
    says = r"f, line 3: 'great' is none of the classes that the model has \(bad, fair"
    for model, label in ((SINGLE, "great"), (MULTI, ("bad", "great"))):
        with pytest.raises(ValueError, match=says):
            TEXT_CLASSIFICATION.check(of("bad", label), model, "f")
    TEXT_CLASSIFICATION.check(of("bad", None), SINGLE, "f")
    TEXT_REGRESSION.check(of(1.0, 2.0), NUMBER, "f")


def test_several_classes_are_joined_or_listed(tmp_path):
    csv = records(tmp_path, "a.csv", "text,label\na,x|y\nb,\nc,y\n", multi_label=True)
    assert [each.label for each in csv] == [("x", "y"), (), ("y",)]
    commas = records(
        tmp_path,
        "b.tsv",
        "text\tlabel\na\tx,y\n",
        multi_label=True,
        label_separator=",",
    )
    assert commas[0].label == ("x", "y")
    listed = '{"text": "a", "label": ["x|y", "z"]}\n{"text": "b", "label": []}'
    found = records(tmp_path, "c.jsonl", listed, multi_label=True)
    assert [each.label for each in found] == [("x|y", "z"), ()]


def test_a_row_that_is_asked_about_needs_no_label():
    """What stands in that column, of whatever kind, is not looked at."""
    for label in ("", None, "unheard of", ["a"], 3):
        row = Row({"text": "a", "label": label}, "f, line 2")
        for problem in (TEXT_CLASSIFICATION, TEXT_REGRESSION):
            assert problem.record(row, USUAL) == TextRecord(("a",), None, "f, line 2")


TOKENIZER = Tokenizer(
    {"kind": "wordpiece", "cased": False},
    "\n".join([*SPECIAL_TOKENS, *"abcd"]).encode(),
)


def encode(found, model=SINGLE, **options):
    config = ExamplesConfig(**options)
    return TEXT_CLASSIFICATION.encode(found, TOKENIZER, model, config)


def shown(examples, row):
    part = slice(examples.starts[row], examples.starts[row + 1])
    return " ".join(TOKENIZER.tokens(examples.tokens[part]))


def test_rows_of_single_texts_and_of_pairs():
    single = encode([TextRecord(("a b",), "good"), TextRecord(("c",), "bad")])
    assert [shown(single, i) for i in (0, 1)] == ["[CLS] a b [SEP]", "[CLS] c [SEP]"]
    assert single.by_example["label"].tolist() == [2, 0]
    assert single.example.tolist() == [0, 1]
    pair = encode([TextRecord(("a b c d a b", "c d"))], max_length=8)
    assert shown(pair, 0) == "[CLS] a b c [SEP] c d [SEP]"
    assert pair.second.tolist() == [5] and "label" not in pair.by_example


def test_rows_are_no_longer_than_the_model():
    short = BertConfig.tiny(max_position_embeddings=9)
    assert encode([TextRecord(("a b c d " * 9,))], short).lengths.tolist() == [9]


def test_pairs_among_single_texts_are_refused():
    mixed = [TextRecord(("a",), where="f, 1"), TextRecord(("a", "b"), where="f, 2")]
    for found in (mixed, mixed[::-1]):
        with pytest.raises(ValueError, match=r"f, \d has . texts and f, \d has .; all"):
            encode(found)


def test_labels_of_each_kind():
    several = of(("good", "bad"), (), ("fair",))
    found = encode(several, MULTI).by_example["label"]
    assert found.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    numbers = encode(of(1.5, -2.0), NUMBER).by_example["label"]
    assert numbers.tolist() == [1.5, -2.0] and numbers.dtype == np.float32


def loss(model, scores, labels):
    total, count = TEXT_CLASSIFICATION.loss(
        model, jnp.array(scores, jnp.float32), {"label": jnp.array(labels)}
    )
    return float(total), float(count)


def test_cross_entropy_by_hand():
    scores = [[np.log(2), 0.0, 0.0], [0.0, 0.0, np.log(6)], [9.0, 9.0, 9.0]]
    total, count = loss(SINGLE, scores, [0, 1, -1])
    assert total == pytest.approx(np.log(2) + np.log(8))  # of 2 in 4, and of 1 in 8
    assert count == 2, "nobody counts nothing"


def test_each_class_by_itself_by_hand():
    scores = [[0.0, np.log(3), -np.log(3)], [5.0, 5.0, 5.0]]
    total, count = loss(MULTI, scores, [[1, 1, 1], [-1, -1, -1]])
    assert total == pytest.approx(np.log(2) + np.log(4 / 3) + np.log(4))
    assert count == 3, "a decision for each class"


def test_squared_error_by_hand():
    total, count = loss(NUMBER, [[1.0], [3.0], [7.0]], [2.5, 3.0, np.nan])
    assert (total, count) == (2.25, 2)


def predictions(model, scores):
    rows = {"label": jnp.zeros(len(scores))}
    found = TEXT_CLASSIFICATION.outputs(model, jnp.array(scores, jnp.float32), rows)
    each = [{"values": np.asarray(values)} for values in found["values"]]
    asked = [TextRecord(("a",))] * len(each)
    return TEXT_CLASSIFICATION.predict(asked, encode(asked), each, model, USUAL)


def test_predictions_by_hand():
    (single,) = predictions(SINGLE, [[0.0, np.log(2), np.log(5)]])
    assert single["label"] == "good" and list(single) == ["label", "probabilities"]
    assert single["probabilities"] == pytest.approx(
        {"bad": 1 / 8, "fair": 2 / 8, "good": 5 / 8}
    )
    some, none = predictions(MULTI, [[np.log(3), -1.0, 0.1], [-1.0, -2.0, -3.0]])
    assert some["labels"] == ["bad", "good"] and none["labels"] == []
    assert some["probabilities"]["bad"] == pytest.approx(0.75)
    assert predictions(NUMBER, [[-3.5]]) == [{"value": -3.5}]
    json.dumps([single, some])  # plain values


def test_scores_against_scikit_learn():
    generator = np.random.default_rng(0)
    known, said = generator.choice(SINGLE.labels, (2, 50)).tolist()
    found = TEXT_CLASSIFICATION.score(
        of(*known), [{"label": label} for label in said], SINGLE, USUAL
    )
    assert found == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(known, said),
            "macro_f1": metrics.f1_score(known, said, average="macro"),
            "mcc": metrics.matthews_corrcoef(known, said),
        }
    )
    assert list(found)[0] == "accuracy", "what the best checkpoint is chosen by"


def test_scores_of_several_classes_against_scikit_learn():
    generator = np.random.default_rng(0)
    known, said = generator.integers(0, 2, (2, 50, 3)).astype(bool)
    names = np.array(MULTI.labels)
    found = TEXT_CLASSIFICATION.score(
        of(*(tuple(names[row]) for row in known)),
        [{"labels": names[row].tolist()} for row in said],
        MULTI,
        USUAL,
    )
    assert found == pytest.approx(
        {
            "micro_f1": metrics.f1_score(known, said, average="micro"),
            "macro_f1": metrics.f1_score(known, said, average="macro"),
            "exact_match": metrics.accuracy_score(known, said),
        }
    )


def test_scores_of_numbers():
    found = TEXT_REGRESSION.score(
        of(1.0, 2.0, 4.0), [{"value": v} for v in (2.0, 4.0, 8.0)], NUMBER, USUAL
    )
    assert found == pytest.approx(
        {"pearson": 1.0, "spearman": 1.0, "mean_squared_error": 7.0}
    )


def test_files_of_predictions(tmp_path):
    write = TEXT_CLASSIFICATION.write
    known = of("bad", "good")
    said = [{"label": "bad"}, {"label": "schön"}]
    assert write(known, said, SINGLE, USUAL, tmp_path) == ["predictions.tsv"]
    content = (tmp_path / "predictions.tsv").read_text("utf-8")
    assert content == "index\tprediction\n0\tbad\n1\tschön\n"
    several = [{"labels": ["bad", "good"]}, {"labels": []}]
    config = ExamplesConfig(multi_label=True, label_separator=", ")
    write(known, several, MULTI, config, tmp_path)
    content = (tmp_path / "predictions.tsv").read_text("utf-8")
    assert content == "index\tprediction\n0\tbad, good\n1\t\n"
    write(known, [{"value": 1.23456}, {"value": -2.0}], NUMBER, USUAL, tmp_path)
    content = (tmp_path / "predictions.tsv").read_text("utf-8")
    assert content == "index\tprediction\n0\t1.2346\n1\t-2.0000\n"


def test_what_a_model_must_beat():
    train, validation = of("a", "b", "b"), of("b", "a", "b", "c")
    name, value = TEXT_CLASSIFICATION.baseline(train, validation)
    assert (name, value) == ("accuracy of the commonest label", 0.5)
    assert TEXT_REGRESSION.baseline(of(1.0), of(2.0))[1] == 0.0


def test_records_are_told_apart_by_content_not_by_place():
    """So that a file may be moved between two parts of a run."""
    one, other = (TextRecord(("a",), "b", where) for where in ("f, 1", "g, 9"))
    assert repr(one) == repr(other) and repr(one) != repr(TextRecord(("c",), "b"))
