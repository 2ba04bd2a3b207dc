"""What a report says of texts with classes or numbers: by hand, and as scikit-learn."""

import json
import math
import re
import shlex
import tracemalloc

import numpy as np
import pytest
from predictions import BOTH, MANY, classified, examples, report_of, text_task
from sklearn.metrics import (
    classification_report,
    confusion_matrix,
    multilabel_confusion_matrix,
)

from bert_jax.reports.report import ScoredSource, error_report, sections
from bert_jax.tasks.predictions import Predictions
from bert_jax.tasks.reporting.by_class import confusions
from bert_jax.tasks.reporting.views import Chart, Examples, Matrix
from bert_jax.tasks.reporting.worst import MAX_EXAMPLES, WorstExamples

GOLD = ("good", "good", "good", "bad", "bad")
SECOND = (0.95, 0.75, 0.15, 0.1, 0.65)
"""Of the third text the model is surest, and wrong; of the last, too, but less."""


@pytest.fixture
def two_classes():
    return report_of(text_task(), examples(*GOLD), classified(*SECOND))


def test_two_classes_by_hand(two_classes):
    assert two_classes["kind"] == "single_label_classification"
    assert two_classes["num_examples"] == 5 and two_classes["num_wrong"] == 2
    assert two_classes["confusion_matrix"] == {
        "labels": list(BOTH),
        "counts": [[1, 1], [1, 2]],
    }
    good = two_classes["classes"][1]
    assert (good["label"], good["support"], good["predicted"]) == ("good", 3, 3)
    assert good["precision"] == good["recall"] == pytest.approx(2 / 3)
    assert two_classes["commonest_class"] == {"label": "good", "fraction": 3 / 5}


def test_the_calibration_error_by_hand(two_classes):
    """0.95, 0.75 and 0.9 are right, 0.85 and 0.65 are not; each is alone in its bin."""
    calibration = two_classes["calibration"]
    gaps = [1 - 0.95, 1 - 0.9, 1 - 0.75, 0.85, 0.65]
    error = calibration["expected_calibration_error"]
    assert error == pytest.approx(sum(gaps) / 5)
    counts = [entry["count"] for entry in calibration["bins"]]
    assert len(counts) == 15 and sum(counts) == calibration["count"] == 5
    assert counts[-1] == 1 and set(counts) == {0, 1}


def test_the_worst_example_is_most_confidently_wrong(two_classes):
    first, second = two_classes["worst"]
    assert (first["index"], first["where"]) == (2, "f.csv, line 4")
    assert (first["label"], first["prediction"]) == ("good", "bad")
    assert first["texts"] == ["text 2"]
    assert first["probability"] == pytest.approx(0.85)
    assert first["label_probability"] == pytest.approx(0.15)
    assert first["loss"] == pytest.approx(-math.log(0.15))
    assert second["index"] == 4 and second["loss"] < first["loss"]


def test_f1_names_its_class(two_classes):
    scores = two_classes["scores"]
    assert two_classes["positive_class"] == "good"
    assert scores["f1"] == scores["f1_good"] == pytest.approx(2 / 3)
    assert scores["f1_bad"] == pytest.approx(1 / 2)
    rows = {row[0]: row[2] for row in sections(two_classes)[0].parts[0].rows}
    assert "f1" not in rows and rows["f1_good"] == "of the class good"
    assert rows["f1_bad"] == "of the class bad"


def test_the_command_with_the_threshold_can_be_pasted(two_classes):
    shown = sections(two_classes | {"checkpoint": "runs/it's mine"})
    (note,) = (section.note for section in shown if section.id == "threshold")
    (command,) = re.findall("`(.*?)`", note)
    assert shlex.split(command)[2:4] == ["runs/it's mine", "--threshold"]


def test_the_best_threshold_by_hand(two_classes):
    """From 0.65 down to 0.15, all good texts are chosen, and one bad one: F1 6/7."""
    threshold = two_classes["threshold"]
    assert 0.1 < threshold["best"]["threshold"] <= 0.15
    assert threshold["best"]["f1"] == pytest.approx(6 / 7)
    assert threshold["default"]["threshold"] == 0.5
    assert threshold["default"]["f1"] == pytest.approx(2 / 3)
    (section,) = (s for s in sections(two_classes) if s.id == "threshold")
    typed = f"predict runs/b --threshold {threshold['best']['threshold']}"
    assert typed in section.note and "'good' is predicted" in section.note


def test_many_classes_against_scikit_learn():
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet(np.ones(3), 80)
    gold = generator.choice(MANY, 80).tolist()
    predicted = [MANY[i] for i in probabilities.argmax(axis=1)]
    values = [
        {"label": label, "probabilities": dict(zip(MANY, row.tolist(), strict=True))}
        for label, row in zip(predicted, probabilities, strict=True)
    ]
    report = report_of(text_task(MANY), examples(*gold), values)
    expected = classification_report(gold, predicted, output_dict=True)
    for entry in report["classes"]:
        own = expected[entry["label"]]
        for name, key in (("precision",) * 2, ("recall",) * 2, ("f1", "f1-score")):
            assert entry[name] == pytest.approx(own[key])
        assert entry["support"] == own["support"]
    for name in ("macro", "weighted"):
        own = expected[f"{name} avg"]
        assert report["averages"][name]["f1"] == pytest.approx(own["f1-score"])
    counts = confusion_matrix(gold, predicted)
    assert report["confusion_matrix"]["counts"] == counts.tolist()
    np.fill_diagonal(counts, 0)
    listed = [entry["count"] for entry in report["confusions"]]
    assert listed == sorted(counts[counts > 0].tolist(), reverse=True)
    assert "threshold" not in report and "positive_class" not in report


def test_more_classes_than_a_page_shows():
    labels = tuple(f"class {i:02}" for i in range(60))
    values = [
        {"label": labels[-1 - i], "probabilities": dict.fromkeys(labels, 1 / 60)}
        for i in range(60)
    ]
    report = report_of(text_task(labels), examples(*labels), values)
    assert report["confusion_matrix"] is None and len(report["confusions"]) == 20
    shown = [part for section in sections(report) for part in section.parts]
    assert not any(isinstance(part, Matrix) for part in shown)
    assert any("no matrix is shown" in section.note for section in sections(report))


def test_many_classes_take_no_copies_of_the_table_of_all_pairs():
    """It is 800 MB of 10,000 classes, and was copied three times for a list of 20."""
    counts = np.diag(np.full(1000, 3))
    counts[[4, 2, 4], [2, 4, 7]] = 1, 2, 2
    tracemalloc.start()
    report = confusions([f"c{i}" for i in range(1000)], counts)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < counts.nbytes / 10 and report["confusion_matrix"] is None
    pairs = [(*one.values(),)[:3] for one in report["confusions"]]
    assert pairs == [("c2", "c4", 2), ("c4", "c7", 2), ("c4", "c2", 1)]


def test_several_classes_each_against_scikit_learn():
    generator = np.random.default_rng(1)
    probabilities, gold = generator.random((40, 3)), generator.random((40, 3)) > 0.6
    own = examples(*(tuple(np.array(MANY)[row].tolist()) for row in gold))
    values = [
        {
            "labels": [name for name, p in zip(MANY, row, strict=True) if p > 0.5],
            "probabilities": dict(zip(MANY, row, strict=True)),
        }
        for row in probabilities.tolist()
    ]
    task = text_task(MANY, problem_type="multi_label_classification")
    report = report_of(task, own, values)
    expected = classification_report(
        gold, probabilities > 0.5, target_names=MANY, output_dict=True, zero_division=0
    )
    for entry in report["classes"]:
        assert entry["f1"] == pytest.approx(expected[entry["label"]]["f1-score"])
    for name in ("micro", "macro", "weighted"):
        own_f1 = report["averages"][name]["f1"]
        assert own_f1 == pytest.approx(expected[f"{name} avg"]["f1-score"])
    assert report["averages"]["micro"]["f1"] == pytest.approx(
        report["scores"]["micro_f1"]
    )
    best = report["classes"][0]["best_threshold"]
    ((_, false), (missed, hits)) = multilabel_confusion_matrix(
        gold, probabilities >= best["threshold"]
    )[0]
    assert best["f1"] == pytest.approx(2 * hits / (2 * hits + false + missed))
    assert report["num_wrong"] == (gold != (probabilities > 0.5)).any(axis=1).sum()
    worst = report["worst"][0]
    of_gold = np.where(gold, probabilities, 1 - probabilities)
    losses = -np.log(of_gold).sum(axis=1)
    assert worst["loss"] == pytest.approx(losses.max())
    assert worst["labels"] == list(own[worst["index"]].label)
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_no_text_has_a_class():
    """Nothing can be right, so there is no threshold; all scores are 0."""
    task = text_task(("a", "b"), problem_type="multi_label_classification")
    values = [{"labels": [], "probabilities": {"a": 0.1, "b": 0.2}}]
    report = report_of(task, examples(()), values)
    assert report["threshold"] is None and report["num_wrong"] == 0
    assert report["classes"][0]["best_threshold"] is None
    assert [section.id for section in sections(report)] == [
        *("scores", "classes", "calibration", "worst")
    ]


def test_numbers_by_hand():
    gold, predicted = [1.0, 2.0, 3.0, 4.0], [1.5, 2.0, 2.0, 8.0]
    task = text_task(("score",), problem_type="regression")
    values = [{"value": value} for value in predicted]
    report = report_of(task, examples(*gold), values)
    assert report["errors"] == pytest.approx(
        {
            "mean_error": 3.5 / 4,
            "mean_absolute_error": 5.5 / 4,
            "root_mean_squared_error": math.sqrt(17.25 / 4),
        }
    )
    assert [entry["index"] for entry in report["worst"]] == [3, 2, 0, 1]
    assert report["worst"][0]["error"] == 4.0
    assert sum(report["histogram"]["counts"]) == 4
    assert sum(entry["count"] for entry in report["by_range"]) == 4
    assert report["points"] == {"label": gold, "prediction": predicted}
    shown = [part for section in sections(report) for part in section.parts]
    assert [type(part) for part in shown][1:3] == [Chart, Chart]


@pytest.mark.parametrize("gold", [[2.0] * 3, [2.0, 2.0, 5.0]])
def test_equal_numbers(gold):
    task = text_task(("score",), problem_type="regression")
    report = report_of(task, examples(*gold), [{"value": 2.0}] * 3)
    assert sum(entry["count"] for entry in report["by_range"]) == 3
    assert sections(report)


@pytest.mark.parametrize("gold", [[1.7e18], [1.7e18] * 3, [1.7e18, 1.7e18 + 512]])
def test_large_numbers_that_are_nearly_equal(gold):
    """Bins of errors would be narrower than the next number."""
    task = text_task(("score",), problem_type="regression")
    report = report_of(task, examples(*gold), [{"value": 2.0}] * len(gold))
    assert sum(report["histogram"]["counts"]) == len(gold)


def test_numbers_far_from_zero_are_shown_apart():
    task = text_task(("score",), problem_type="regression")
    predicted = [{"value": 1e9 + x} for x in (123.0, 9.0)]
    report = report_of(task, examples(1e9, 1e9 + 8), predicted)
    _, errors, worst = sections(report)
    rows = [row[0] for row in errors.parts[2].rows]
    assert rows == ["1000000000 to 1000000000", "1000000008 to 1000000008", "all"]
    facts = dict(worst.parts[0].items[0].facts)
    assert (facts["gold"], facts["predicted"]) == ("1000000000", "1000000123")


def test_long_files_have_a_sample_of_points():
    task = text_task(("score",), problem_type="regression")
    gold = np.random.default_rng(0).random(5000).tolist()
    report = report_of(task, examples(*gold), [{"value": x / 2} for x in gold])
    assert len(report["points"]["label"]) == 1000
    assert len(report["worst"]) == MAX_EXAMPLES
    assert report["points"]["label"] == sorted(report["points"]["label"])
    (errors, _) = sections(report)[1:]
    assert "1,000 of 5,000 texts" in errors.parts[0].note


def test_the_listed_examples_are_the_worst_of_all_and_of_each_kind():
    worst = WorstExamples()
    generator = np.random.default_rng(0)
    losses = generator.random(3000).round(3)
    kinds = ["rare" if i % 300 == 0 else "common" for i in range(3000)]
    for i, loss in enumerate(losses.tolist()):
        worst.add(loss, i, [kinds[i]])
    by_loss = sorted(range(3000), key=lambda i: (-losses[i], i))
    rare = [i for i in by_loss if kinds[i] == "rare"][:5]
    expected = {*by_loss[:MAX_EXAMPLES], *rare}
    assert worst.indices() == [i for i in by_loss if i in expected]
    assert worst.num_wrong == 3000


def test_all_is_right():
    report = report_of(text_task(), examples("bad", "good"), classified(0.2, 0.9))
    assert report["worst"] == [] and report["confusions"] == []
    (part,) = sections(report)[-1].parts
    assert isinstance(part, Examples) and not part.items


def test_a_certain_mistake_has_a_finite_loss():
    report = report_of(text_task(), examples("bad", "good"), classified(1.0, 1.0))
    assert 80 < report["worst"][0]["loss"] < 100


def test_a_probability_that_is_no_number():
    values = [{"label": "bad", "probabilities": {"bad": math.nan, "good": math.nan}}]
    with pytest.raises(ValueError, match="training diverged"):
        report_of(text_task(), examples("bad"), values)


def test_long_texts_are_cut():
    (example,) = examples("bad")
    long = type(example)(("x" * 5000,), "bad")
    report = report_of(text_task(), [long], classified(0.9))
    (text,) = report["worst"][0]["texts"]
    assert text == "x" * 1000 + " […]"


def test_a_score_of_ones_own_may_be_called_f1():
    """Of more than two classes, there is no class that it is of."""
    task, own = text_task(MANY), examples("a", "b", "c")
    values = [{"label": "a", "probabilities": {"a": 0.5, "b": 0.3, "c": 0.2}}] * 3
    source = ScoredSource("runs/b", "test.csv")
    report = error_report(task, Predictions(own, values), {"f1": 0.5}, source)
    assert sections(report)[0].parts[0].rows[0] == ["f1", 0.5, ""]
