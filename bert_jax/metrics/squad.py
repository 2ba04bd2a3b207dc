"""Scores of SQuAD 1.1 and 2.0, equal to the official scripts in every digit.

Scores are in per cent, as the scripts print them. Sums are computed in the order of the
given mappings, so that the last digit agrees too.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_QUESTIONS = "There are no questions: no score is defined."
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lowercase, then remove ASCII punctuation, articles and surplus white space.

    The order matters (Rajpurkar et al. 2016, §6.1): without punctuation, "a." is an
    article and "well-known" one word.
    """
    words = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", words).split())


def answer_exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether a prediction equals one of the gold answers, both normalised."""
    return normalize_answer(prediction) in map(normalize_answer, golds)


def answer_f1(prediction: str, golds: Sequence[str]) -> float:
    """F1 in [0, 1] of the words of a prediction and of the closest gold answer.

    As in SQuAD 1.1, it is 0 without a common word, even if neither has any word. Raise
    ValueError if there is no gold answer.
    """
    words = normalize_answer(prediction).split()
    f1 = []
    for gold_words in (normalize_answer(gold).split() for gold in golds):
        common = (Counter(words) & Counter(gold_words)).total()
        precision, recall = (common / max(len(w), 1) for w in (words, gold_words))
        f1.append(2 * precision * recall / ((precision + recall) or 1))
    return max(f1)


def squad1_scores(
    answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str]
) -> dict[str, float]:
    """`exact_match` and `f1` in per cent over all questions of SQuAD 1.1.

    A question without a prediction scores 0; other predictions are ignored.

    Args:
        answers: question id → its gold answers.
        predictions: question id → the predicted answer.

    Raises:
        ValueError: there are no questions, or a question has no gold answer.
    """
    if not answers:
        raise ValueError(_NO_QUESTIONS)
    exact_match, f1 = 0, 0.0
    for question, golds in answers.items():
        if not golds:
            raise ValueError(
                f"question {question!r} has no gold answer: SQuAD 1.1 needs one, "
                f"score it as 2.0."
            )
        if question in predictions:
            exact_match += answer_exact_match(predictions[question], golds)
            f1 += answer_f1(predictions[question], golds)
    return {
        "exact_match": 100.0 * exact_match / len(answers),
        "f1": 100.0 * f1 / len(answers),
    }


def squad2_scores(
    answers: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    no_answer_scores: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, int | float]:
    """The scores of SQuAD 2.0 under their official names, in per cent, and counts.

    A question whose no-answer score exceeds `threshold` counts as predicted to have no
    answer.

    Args:
        answers: question id → its gold answers, none if it is unanswerable.
        predictions: question id → the predicted answer, "" for none.
        no_answer_scores: question id → a number that is higher if no answer is more
            likely: a probability or log-odds.

    Returns:
        `exact`, `f1`, `total`, the same of answerable questions (`HasAns_…`) and of
        the others (`NoAns_…`) if there are any. With no_answer_scores, also the best
        score over all thresholds, and the lowest threshold that reaches it:
        `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh` (Rajpurkar, Jia
        & Liang 2018).

    Raises:
        ValueError: there are no questions, or a question has no prediction or no
            no-answer score; the official script stops with a KeyError then.
    """
    if not answers:
        raise ValueError(_NO_QUESTIONS)
    _check_complete("prediction", answers, predictions)
    raw = _raw_scores(answers, predictions)
    decided = raw
    if no_answer_scores is not None:
        _check_complete("no-answer score", answers, no_answer_scores)
        # Above the threshold, "no answer" is right for unanswerable questions only.
        decided = {
            name: {
                q: float(not answers[q]) if no_answer_scores[q] > threshold else score
                for q, score in scores.items()
            }
            for name, scores in raw.items()
        }
    groups = {
        "": list(answers),
        "HasAns_": [q for q in answers if answers[q]],
        "NoAns_": [q for q in answers if not answers[q]],
    }
    result: dict[str, int | float] = {}
    for prefix, questions in groups.items():
        if questions:
            for name, scores in decided.items():
                total = sum(scores[q] for q in questions)
                result[prefix + name] = 100.0 * total / len(questions)
            result[f"{prefix}total"] = len(questions)
    if no_answer_scores is not None:
        for name, scores in raw.items():
            result[f"best_{name}"], result[f"best_{name}_thresh"] = _best_threshold(
                answers, predictions, scores, no_answer_scores
            )
    return result


def _raw_scores(
    answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """`exact` and `f1` of each question in [0, 1], as in SQuAD 2.0, no threshold."""
    exact, f1 = {}, {}
    for question, texts in answers.items():
        # The gold answer of an unanswerable question is the empty text.
        golds = [text for text in texts if normalize_answer(text)] or [""]
        prediction = predictions[question]
        exact[question] = float(answer_exact_match(prediction, golds))
        # Two answers without words have F1 1, unlike in SQuAD 1.1.
        f1[question] = max(exact[question], answer_f1(prediction, golds))
    return {"exact": exact, "f1": f1}


def _best_threshold(
    answers: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    no_answer_scores: Mapping[str, float],
) -> tuple[float, float]:
    """The best mean score in per cent over all thresholds, and the lowest best one.

    Starts with no question answered, then adds questions in the order of their
    no-answer scores. As in the official script, questions with equal scores are added
    one by one, in the order of the mapping; the threshold is 0 if no answers are best;
    and any answer to an unanswerable question loses a point, even one that normalises
    to nothing.
    """
    best = current = float(sum(not golds for golds in answers.values()))
    threshold = 0.0
    for question in sorted(no_answer_scores, key=no_answer_scores.__getitem__):
        if question not in scores:
            continue
        if answers[question]:
            current += scores[question]
        elif predictions[question]:
            current -= 1
        if current > best:
            best, threshold = current, no_answer_scores[question]
    return 100.0 * best / len(scores), threshold


def _check_complete(
    name: str, answers: Mapping[str, Sequence[str]], given: Mapping[str, object]
) -> None:
    missing = [question for question in answers if question not in given]
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(answers)} questions have no {name}, the first "
            f"{missing[0]!r}; SQuAD 2.0 needs one of each."
        )
