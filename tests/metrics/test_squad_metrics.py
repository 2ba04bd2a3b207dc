"""Scores of SQuAD by hand; the two versions where they differ; the best threshold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.metrics.squad import (
    answer_exact_match,
    answer_f1,
    normalize_answer,
    squad1_scores,
    squad2_scores,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Cat", "cat"),
        ("an apple a day", "apple day"),
        ("theatre Anna banana", "theatre anna banana"),
        ("well-known", "wellknown"),
        # Punctuation goes first, so what is left of these is an article, and this not.
        ("A.", ""),
        ("the!", ""),
        ("the-end", "theend"),
        ("a.m.", "am"),
        ("$1,000.50", "100050"),
        ("  two\t words \n", "two words"),
        ("", ""),
        (" ?! ", ""),
        ("the", ""),
        # Only ASCII punctuation goes; an article stands alone beside any other.
        ("“the” café", "“ ” café"),
        ("the—end", "—end"),
        ("naïve Á", "naïve á"),
        ("a\u00a0b\u3000c", "b c"),
        ("ÀB a\u0301", "àb \u0301"),
        ("STRASSE Straße İ", "strasse straße i\u0307"),
    ],
)
def test_normalisation(text, normal):
    assert normalize_answer(text) == normal


@pytest.mark.parametrize(
    ("prediction", "golds", "exact", "f1"),
    [
        ("The Cat.", ["cat"], True, 1),
        ("black cat", ["the cat"], False, 2 / 3),
        ("cat", ["black cat sat"], False, 1 / 2),
        # 2 of 3 and 2 of 4.
        ("one two three", ["two three four five"], False, 4 / 7),
        # A word counts as often as both have it: 2 of 3 and 2 of 2.
        ("New New York", ["New New"], False, 4 / 5),
        ("dog", ["cat"], False, 0),
        # The best gold answer counts, in whatever place.
        ("black cat", ["dog", "cat", "a black cat"], True, 1),
        ("black cat", ["cat", "dog"], False, 2 / 3),
        ("", ["cat"], False, 0),
        ("the", ["an"], True, 0),
    ],
)
def test_one_answer(prediction, golds, exact, f1):
    assert answer_exact_match(prediction, golds) is exact
    assert answer_f1(prediction, golds) == pytest.approx(f1)


def test_squad1_by_hand():
    answers = {"a": ["cat"], "b": ["the cat", "dog"], "c": ["x"], "d": ["Y!"]}
    predictions = {"b": "black cat", "a": "Cat", "d": "y", "unknown": "z"}
    assert squad1_scores(answers, predictions) == pytest.approx(
        {"exact_match": 50, "f1": 100 * (1 + 2 / 3 + 1) / 4}
    )


ANSWERS = {
    "paris": ["Paris"],
    "house": ["the blue house", "a house"],
    "none 3": [],
    "1492": ["1492"],
    "none 5": [],
    "none 6": [],
}
PREDICTIONS = {
    "paris": "Paris",
    "house": "blue boat",  # exact 0, F1 1/2
    "none 3": "Rome",
    "1492": "1492.",
    "none 5": "",
    "none 6": "blue",
}
NO_ANSWER = {
    "none 6": 0.9,
    "paris": 0.1,
    "house": 0.2,
    "none 3": 0.3,
    "1492": 0.6,
    "none 5": 0.8,
}
BEST = {
    # From 3 with nothing answered: 4 at 0.1, 4, 3, 4, 4, 3.
    "best_exact": 100 * 4 / 6,
    "best_exact_thresh": 0.1,
    # 4 at 0.1, 4.5 at 0.2, 3.5, 4.5 again and too late, 4.5, 3.5.
    "best_f1": 100 * 4.5 / 6,
    "best_f1_thresh": 0.2,
}


def test_squad2_by_hand_without_numbers():
    expected = {
        "exact": 100 * 3 / 6,
        "f1": 100 * 3.5 / 6,
        "total": 6,
        "HasAns_exact": 100 * 2 / 3,
        "HasAns_f1": 100 * 2.5 / 3,
        "HasAns_total": 3,
        "NoAns_exact": 100 * 1 / 3,
        "NoAns_f1": 100 * 1 / 3,
        "NoAns_total": 3,
    }
    scores = squad2_scores(ANSWERS, PREDICTIONS)
    assert scores == pytest.approx(expected)
    assert list(scores) == list(expected)
    # No number exceeds the official threshold, 1.
    with_numbers = squad2_scores(ANSWERS, PREDICTIONS, NO_ANSWER)
    assert with_numbers == pytest.approx(expected | BEST)
    assert list(with_numbers) == list(expected) + list(BEST)
    assert '"total": 6,' in json.dumps(with_numbers)


def test_squad2_by_hand_at_a_threshold():
    # 1492 is lost, and none 6 won.
    scores = squad2_scores(ANSWERS, PREDICTIONS, NO_ANSWER, threshold=0.5)
    assert scores == pytest.approx(
        {
            "exact": 100 * 3 / 6,
            "f1": 100 * 3.5 / 6,
            "total": 6,
            "HasAns_exact": 100 * 1 / 3,
            "HasAns_f1": 100 * 1.5 / 3,
            "HasAns_total": 3,
            "NoAns_exact": 100 * 2 / 3,
            "NoAns_f1": 100 * 2 / 3,
            "NoAns_total": 3,
            **BEST,
        }
    )


def test_a_number_at_the_threshold_does_not_exceed_it():
    answers, predictions = {"a": ["x"]}, {"a": "x"}
    assert squad2_scores(answers, predictions, {"a": 0.5}, 0.5)["exact"] == 100
    assert squad2_scores(answers, predictions, {"a": 0.5}, 0.4)["exact"] == 0


def test_equal_numbers_are_told_apart_in_their_order():
    answers, predictions = {"right": ["x"], "wrong": []}, {"right": "x", "wrong": "y"}
    scores = squad2_scores(answers, predictions, {"right": 0.5, "wrong": 0.5})
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (100, 0.5)
    scores = squad2_scores(answers, predictions, {"wrong": 0.5, "right": 0.5})
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (50, 0)


def test_an_answer_to_an_unanswerable_question_costs_a_point_even_if_only_an_article():
    answers, predictions = {"a": ["x"], "b": []}, {"a": "x", "b": "the"}
    numbers = {"b": 0.1, "a": 0.2}
    scores = squad2_scores(answers, predictions, numbers)
    assert scores["exact"] == 100
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (50, 0)


def test_where_the_versions_differ():
    # Two answers without words: F1 0 in 1.1, 1 in 2.0.
    answers, predictions = {"a": ["The"]}, {"a": ""}
    assert squad1_scores(answers, predictions) == {"exact_match": 100, "f1": 0}
    scores = squad2_scores(answers, predictions)
    assert (scores["HasAns_exact"], scores["HasAns_f1"]) == (100, 100)
    # A gold answer without words counts in 1.1; in 2.0 not beside one with words.
    answers = {"a": ["The", "end"]}
    assert squad1_scores(answers, predictions)["exact_match"] == 100
    assert squad2_scores(answers, predictions)["exact"] == 0
    assert "NoAns_total" not in scores


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="There are no questions"):
        squad1_scores({}, {})
    with pytest.raises(ValueError, match="There are no questions"):
        squad2_scores({}, {})
    with pytest.raises(ValueError, match="question 'b' has no gold answer"):
        squad1_scores({"a": ["x"], "b": []}, {})
    answers = {"a": ["x"], "b": [], "c": []}
    with pytest.raises(ValueError, match="2 of 3 questions have no prediction.*'b'"):
        squad2_scores(answers, {"a": "x"})
    predictions = dict.fromkeys(answers, "")
    with pytest.raises(ValueError, match="1 of 3 questions have no no-answer score"):
        squad2_scores(answers, predictions, {"a": 0.1, "b": 0.1})


WORDS = st.lists(st.sampled_from(["the", "cat", "Dog", "sat.", "-", "é"]), max_size=4)
TEXTS = WORDS.map(" ".join)
QUESTIONS = st.lists(
    st.tuples(st.lists(TEXTS, max_size=3), TEXTS), min_size=1, max_size=8
)


@given(TEXTS)
def test_normalising_twice_changes_nothing(text):
    assert normalize_answer(normalize_answer(text)) == normalize_answer(text)


@given(TEXTS, TEXTS)
def test_f1_is_a_symmetric_fraction(one, other):
    f1 = answer_f1(one, [other])
    assert 0 <= f1 <= 1
    assert f1 == pytest.approx(answer_f1(other, [one]))
    if normalize_answer(one):
        assert answer_f1(one, [other, one]) == 1


@given(QUESTIONS, st.randoms())
def test_scores_know_no_order_and_gold_scores_100(questions, random):
    answers = {str(i): golds for i, (golds, _) in enumerate(questions)}
    predictions = {str(i): text for i, (_, text) in enumerate(questions)}
    scores = squad2_scores(answers, predictions)
    items = list(answers.items())
    random.shuffle(items)
    assert squad2_scores(dict(items), predictions) == pytest.approx(scores)
    gold = {
        q: next(filter(normalize_answer, golds), "") for q, golds in answers.items()
    }
    perfect = squad2_scores(answers, gold)
    assert perfect["exact"] == perfect["f1"] == 100


@given(QUESTIONS, st.permutations(range(8)))
def test_no_threshold_is_better_than_the_best(questions, order):
    answers = {str(i): golds for i, (golds, _) in enumerate(questions)}
    # Where a text normalises to nothing the search is exact only if it is empty.
    predictions = {
        str(i): text if normalize_answer(text) else ""
        for i, (_, text) in enumerate(questions)
    }
    numbers = {q: float(n + 1) for q, n in zip(answers, order, strict=False)}
    by_threshold = {
        t: squad2_scores(answers, predictions, numbers, t)
        for t in (0.0, *numbers.values())
    }
    best = by_threshold[0.0]
    for name in ("exact", "f1"):
        highest = max(scores[name] for scores in by_threshold.values())
        assert best[f"best_{name}"] == pytest.approx(highest)
        at = by_threshold[best[f"best_{name}_thresh"]]
        assert at[name] == pytest.approx(highest)
