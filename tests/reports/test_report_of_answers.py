"""What a report says of answers to questions, and of choices, by hand."""

import dataclasses

import pytest
from predictions import report_of

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.model import ANSWERABLE_LABELS
from bert_jax.reports.report import sections
from bert_jax.tasks.answers.report import answer_type, excerpt, question_word
from bert_jax.tasks.answers.rows import SquadExample
from bert_jax.tasks.answers.task import QuestionAnsweringTask
from bert_jax.tasks.choices.examples import ChoiceExample
from bert_jax.tasks.choices.task import MultipleChoiceTask

CONTEXT = "Marie Curie was born in Warsaw in 1867, and she moved to Paris."


def asked(question, answer=None, id_=""):
    start = CONTEXT.index(answer) if answer else 0
    answers = ((answer, start),) if answer else ()
    name = id_ or question
    return SquadExample(name, "", question, CONTEXT, answers, impossible=not answer)


def answered(example, text, score=0.5):
    start = CONTEXT.index(text) if text else None
    end = start + len(text) if text else None
    place = {"start": start, "end": end, "null_odds": 0.0}
    return {"id": example.id, "answer": text, "score": score} | place


def qa_report(*pairs):
    own = [example for example, _ in pairs]
    labels = ANSWERABLE_LABELS if any(e.impossible for e in own) else ()
    model = BertConfig.tiny(head="question_answering", labels=labels)
    values = [answered(example, *answer) for example, answer in pairs]
    return report_of(QuestionAnsweringTask(ExamplesConfig(), model), own, values)


@pytest.fixture
def answers():
    return qa_report(
        (asked("Who was born in Warsaw?", "Marie Curie"), ("Marie Curie", 0.9)),
        (asked("Where was she born?", "Warsaw"), ("in Warsaw", 0.6)),
        (asked("Where did she move?", "Paris"), ("Warsaw", 0.8)),
        (asked("In what year was she born?", "1867"), ("Paris", 0.9)),
    )


def test_scores_by_question_word(answers):
    groups = {g.pop("group"): g for g in answers["groups"]["question_word"]}
    assert groups["who"] == {"count": 1, "exact_match": 100.0, "f1": 100.0}
    # "in Warsaw" has one of two words right, and all of the answer: F1 2/3.
    assert groups["where"]["count"] == 2 and groups["where"]["exact_match"] == 0
    assert groups["where"]["f1"] == pytest.approx(100 * (2 / 3) / 2)
    assert groups["when"] == {"count": 1, "exact_match": 0.0, "f1": 0.0}
    total = sum(group["count"] * group["f1"] for group in groups.values())
    assert total / 4 == pytest.approx(answers["scores"]["f1"])


def test_scores_by_type_of_answer(answers):
    groups = {g.pop("group"): g for g in answers["groups"]["answer_type"]}
    assert groups["capitalised, as a name"]["count"] == 3
    assert groups["with a number"] == {"count": 1, "exact_match": 0.0, "f1": 0.0}


@pytest.mark.parametrize(
    ("answer", "group"),
    [
        ("“Paris”", "capitalised, as a name"),
        ("the 18th century", "with a number"),
        ("moved to", "other words"),
        ("三百", "with a number"),
        ("…", "other words"),
    ],
)
def test_types_of_answers(answer, group):
    example = dataclasses.replace(asked("?"), answers=((answer, 0),))
    assert answer_type(example) == group


def test_scores_by_length(answers):
    one, two = answers["groups"]["answer_words"]
    assert (one["group"], one["count"]) == ("1", 3)
    assert (two["group"], two["exact_match"]) == ("2", 100.0)
    (short,) = answers["groups"]["context_words"]
    assert (short["group"], short["count"]) == ("1 to 50", 4)
    assert "answerable" not in answers["groups"]


def test_errors_and_the_worst_answers(answers):
    assert answers["error_kinds"] == {"exact": 1, "some words": 1, "no words": 2}
    assert answers["num_wrong"] == 3
    # Without any right word, the surest first; then the one with some right words.
    assert [entry["index"] for entry in answers["worst"]] == [3, 2, 1]
    parts = answers["worst"][2]["context"]
    assert parts == [
        ["Marie Curie was born ", ""],
        ["in ", "predicted"],
        ["Warsaw", "both"],
        [" in 1867, and she moved to Paris.", ""],
    ]
    error = answers["calibration"]["expected_calibration_error"]
    assert error == pytest.approx((2 * (0.9 - 0.5) + 0.6 + 0.8) / 4)


def test_questions_without_an_answer():
    report = qa_report(
        (asked("Who died?"), ("", 0.7)),
        (asked("Why did she move?"), ("Paris", 0.6)),
        (asked("Where was she born?", "Warsaw"), ("", 0.9)),
        (asked("When was she born?", "1867"), ("1867", 0.9)),
    )
    assert report["error_kinds"] == {"exact": 2, "not answered": 1, "answered": 1}
    yes, no = sorted(
        report["groups"]["answerable"], key=lambda g: g["group"], reverse=True
    )
    assert (yes["count"], yes["f1"]) == (2, report["scores"]["HasAns_f1"])
    assert (no["count"], no["f1"]) == (2, report["scores"]["NoAns_f1"])
    groups = [group["group"] for group in report["groups"]["answer_words"]]
    assert groups == ["1", "none"]
    facts = dict(sections(report)[-1].parts[0].items[0].facts)
    assert facts["gold"] == "Warsaw" and facts["predicted"] == "no answer"


@pytest.mark.parametrize(
    ("question", "group"),
    [
        ("Who wrote it?", "who"),
        ("To whom was it sent?", "who"),
        ("How many people came?", "how many or how much"),
        ("How was it made?", "how"),
        ("What year was it?", "when"),
        ("In which city, and when?", "which"),
        ("Name the author.", "other"),
        ("The whole show?", "other"),
        ("WHY?", "why"),
    ],
)
def test_question_words(question, group):
    assert question_word(asked(question)) == group


def test_a_long_document_is_cut_around_the_answers():
    context = "a" * 1000 + "GOLD" + "b" * 1000 + "WRONG" + "c" * 1000
    places = {"gold": [(1000, 1004)], "predicted": [(2004, 2009)]}
    assert excerpt(context, places) == [
        ["", "cut"],
        ["a" * 150, ""],
        ["GOLD", "gold"],
        ["b" * 150, ""],
        ["", "cut"],
        ["b" * 150, ""],
        ["WRONG", "predicted"],
        ["c" * 150, ""],
        ["", "cut"],
    ]


def test_choices_by_hand():
    own = [
        ChoiceExample("He opens", ("a", "b"), "then", label, f"f.csv, line {i}")
        for i, label in enumerate((0, 0, 1))
    ]
    probabilities = [[0.75, 0.25], [0.125, 0.875], [0.625, 0.375]]
    values = [
        {"choice": int(row[1] > 0.5), "probabilities": row} for row in probabilities
    ]
    model = BertConfig.tiny(head="multiple_choice")
    report = report_of(MultipleChoiceTask(ExamplesConfig(), model), own, values)
    assert report["confusion_matrix"]["counts"] == [[1, 1], [1, 0]]
    assert [entry["recall"] for entry in report["classes"]] == [0.5, 0.0]
    error = report["calibration"]["expected_calibration_error"]
    assert error == pytest.approx((0.25 + 0.875 + 0.625) / 3)
    assert [entry["index"] for entry in report["worst"]] == [1, 2]
    item = sections(report)[-1].parts[0].items[0]
    assert item.confusions == [("0", "1")]
    marks = {p.name: p.spans[0].mark for p in item.passages}
    assert marks == {
        "context": "",
        "question": "",
        "choice 0 (12.5%)": "gold",
        "choice 1 (87.5%)": "wrong",
    }
