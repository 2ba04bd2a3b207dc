"""Errors in the answers to questions about a document."""

import itertools
import re
from collections.abc import Callable, Sequence

import numpy as np

from bert_jax.metrics.squad import squad1_scores, squad2_scores
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.answers.rows import SquadExample
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Prediction, Predictions
from bert_jax.tasks.reporting.analysis import Analysis
from bert_jax.tasks.reporting.probabilities import calibration_of, calibration_section
from bert_jax.tasks.reporting.views import (
    Column,
    Item,
    MarkedSpan,
    MarkKind,
    Passage,
    Section,
    Table,
)
from bert_jax.tasks.reporting.worst import WorstExamples, worst_section

QUESTION_WORDS = {
    "how many or how much": r"how (many|much)",
    "how": "how",
    "who": "who|whom|whose",
    "when": "when|(what|which) (year|date|day|month|century|decade|time)",
    "where": "where",
    "why": "why",
    "which": "which",
    "what": "what",
}
"""The groups of questions by their first question word, as patterns; earlier groups
have precedence at the same word."""
_ANSWER_WORDS = (1, 2, 3, 5, 10)
"""The most words of an answer in each group but the last."""
_CONTEXT_WORDS = (50, 100, 200, 400)
_MARGIN = 150
"""The characters of the document that are listed on either side of an answer."""


def analyse(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    """Return scores by kind of question and by length, and the worst answers."""
    pairs = list(zip(predictions.examples, predictions.values, strict=True))
    has_null = any(example.impossible for example, _ in pairs)
    scores = [_scores(example, value, has_null) for example, value in pairs]
    exact = np.array([score["exact_match"] for score in scores])
    f1 = np.array([score["f1"] for score in scores])
    kinds = [score["error"] for score in scores]
    probabilities = np.array([value["score"] for _, value in pairs])
    worst = WorstExamples()
    for i, kind in enumerate(kinds):
        if kind != "exact":
            # First the answers without any right word, then the surest ones.
            worst.add(2 * (100 - f1[i]) / 100 + probabilities[i], i)
    return {
        "calibration": calibration_of(probabilities, exact == 100),
        "groups": {
            name: _grouped([of(example) for example, _ in pairs], exact, f1)
            for name, (_, of) in _GROUPS.items()
            if name != "answerable" or has_null
        },
        "error_kinds": {kind: kinds.count(kind) for kind in _ERRORS if kind in kinds},
        **worst.listed(lambda i: _entry(pairs[i], scores[i])),
    }


_ERRORS = {
    "exact": "the words of an accepted answer",
    "some words": "other words, some of them of an accepted answer",
    "no words": "no word of an accepted answer",
    "not answered": "there is an answer, and none is predicted",
    "answered": "there is no answer, and one is predicted",
}


def _scores(example: SquadExample, value: Prediction, has_null: bool) -> JsonObject:
    """Return exact match and F1 in per cent, by 2.0 or 1.1, and the kind of error."""
    gold = {example.id: [text for text, _ in example.answers]}
    answer = {example.id: value["answer"]}
    scores = squad2_scores(gold, answer) if has_null else squad1_scores(gold, answer)
    exact = float(scores["exact" if has_null else "exact_match"])
    f1 = float(scores["f1"])
    error = "some words" if f1 else "no words"
    if exact:
        error = "exact"
    elif example.impossible:
        error = "answered"
    elif not value["answer"]:
        error = "not answered"
    return {"exact_match": exact, "f1": f1, "error": error}


def question_word(example: SquadExample) -> str:
    """Return the group of the first question word of a question, else `other`."""
    text = example.question.casefold()
    places = {
        name: match.start()
        for name, pattern in QUESTION_WORDS.items()
        if (match := re.search(rf"\b({pattern})\b", text))
    }
    return min(places, key=places.__getitem__) if places else "other"


def answer_type(example: SquadExample) -> str:
    """Return what the first accepted answer looks like, in any language."""
    if not example.answers:
        return "none"
    text = example.answers[0][0]
    if any(character.isnumeric() for character in text):
        return "with a number"
    first = next(filter(str.isalpha, text), "")
    return "capitalised, as a name" if first.isupper() else "other words"


def _range(number: int, bounds: Sequence[int]) -> str:
    """Return the range of a number between bounds, each of which ends one."""
    low = 0
    for high in bounds:
        if number <= high:
            return str(high) if high == low + 1 else f"{low + 1} to {high}"
        low = high
    return f"more than {low}"


_GROUPS: dict[str, tuple[str, Callable[[SquadExample], str]]] = {
    "answerable": ("Has an answer", lambda e: "no" if e.impossible else "yes"),
    "question_word": ("Question word", question_word),
    "answer_type": ("Answer", answer_type),
    "answer_words": (
        "Words of the answer",
        lambda e: (
            _range(len(e.answers[0][0].split()), _ANSWER_WORDS) if e.answers else "none"
        ),
    ),
    "context_words": (
        "Words of the document",
        lambda e: _range(len(e.context.split()), _CONTEXT_WORDS),
    ),
}
"""The groups of questions: their title, and the group of a question."""


def _grouped(
    groups: Sequence[str], exact: np.ndarray, f1: np.ndarray
) -> list[JsonObject]:
    """Return the scores of each group, in the order of their numbers."""
    names = np.array(groups)
    by_group = [
        {
            "group": name,
            "count": int((names == name).sum()),
            "exact_match": float(exact[names == name].mean()),
            "f1": float(f1[names == name].mean()),
        }
        for name in dict.fromkeys(groups)
    ]
    return sorted(by_group, key=_order)


def _order(group: JsonObject) -> tuple[bool, bool, int]:
    """Return a key: ranges by their numbers, other groups by their counts."""
    name = group["group"]
    number = re.search(r"\d+", name)
    place = int(number[0]) if number else -group["count"]
    return name.startswith("more"), not number, place


def _entry(pair: tuple[SquadExample, Prediction], scores: JsonObject) -> JsonObject:
    example, value = pair
    first = [] if example.misplaced else example.answers[:1]
    gold = [(start, start + len(text)) for text, start in first]
    places = {"gold": gold, "predicted": []}
    if value["answer"]:
        places["predicted"] = [(value["start"], value["end"])]
    return {
        "where": f"question {example.id}",
        "question": example.question,
        "answers": list(dict.fromkeys(text for text, _ in example.answers)),
        "prediction": value["answer"],
        "probability": float(value["score"]),
        "f1": scores["f1"],
        "error": scores["error"],
        "context": excerpt(example.context, places),
    }


def excerpt(context: str, places: dict[str, list[tuple[int, int]]]) -> list[list[str]]:
    """Return the parts of a document around answers, as pairs of text and what it is.

    A text is `both`, `gold`, `predicted`, "" or, where something is left out, `cut`.
    """
    ranges = [place for own in places.values() for place in own] or [(0, 0)]
    shown = [(max(0, a - _MARGIN), min(len(context), b + _MARGIN)) for a, b in ranges]
    ends = {0, len(context), *itertools.chain(*ranges, *shown)}
    parts: list[list[str]] = []
    for start, end in itertools.pairwise(sorted(ends)):
        inside = [name for name, own in places.items() if _holds(own, start)]
        kind = "both" if len(inside) == 2 else (inside or [""])[0]
        text = context[start:end]
        if not _holds(shown, start):
            text, kind = "", "cut"
        if parts and parts[-1][1] == kind:
            parts[-1][0] += text
        else:
            parts.append([text, kind])
    return parts


def _holds(places: Sequence[tuple[int, int]], character: int) -> bool:
    return any(start <= character < end for start, end in places)


def sections(report: JsonObject) -> list[Section]:
    tables = []
    scores = ("exact match", "F1")
    for name, groups in report["groups"].items():
        title, _ = _GROUPS[name]
        columns = [Column(title.lower()), Column("questions", "whole")]
        columns += [Column(score, "percent", has_bar=True) for score in scores]
        rows = [
            [g["group"], g["count"], g["exact_match"] / 100, g["f1"] / 100]
            for g in groups
        ]
        tables.append(Table(title, columns, rows))
    errors = Table(
        "Answers by error",
        [Column("answer"), Column("count", "whole"), Column("meaning")],
        [[name, n, _ERRORS[name]] for name, n in report["error_kinds"].items()],
    )
    note = (
        "By the first question word, such as that of “In which city …”, by what the "
        "first accepted answer looks like, and by the words of that answer and of the "
        "document, split at white space."
    )
    about = "First the answers without any right word, of these the surest ones."
    return [
        Section("groups", "Questions", note, [*tables]),
        Section("errors", "Errors", "", [errors]),
        calibration_section(report["calibration"], "the answer", "is an exact match"),
        worst_section(report, about, _item, unit="questions"),
    ]


_MARKS: dict[str, tuple[MarkKind, str]] = {
    "gold": ("gold", "gold"),
    "predicted": ("wrong", "predicted"),
    "both": ("right", "gold and predicted"),
}


def _item(entry: JsonObject) -> Item:
    facts = [
        ("gold", " | ".join(entry["answers"]) or "no answer"),
        ("predicted", entry["prediction"] or "no answer"),
        ("probability", f"{entry['probability']:.2%}"),
        ("F1", f"{entry['f1']:.1f}"),
        ("error", entry["error"]),
    ]
    question = Passage("question", [MarkedSpan(entry["question"])])
    spans = []
    for text, kind in entry["context"]:
        mark, label = _MARKS.get(kind, ("", ""))
        spans.append(MarkedSpan(text or " […] ", mark, label))
    return Item(entry["where"], facts, [question, Passage("document", spans)])


_MEANINGS = {
    "f1": "words in common with the closest accepted answer, in per cent",
    "exact_match": "answers with the words of an accepted one, in per cent",
}
ANALYSES = {"question-answering": Analysis(analyse, sections, _MEANINGS)}
