"""The scores of SQuAD 2.0 from files, as the official script computes them.

A second implementation, to compare with; it reads what `evaluate` wrote.
"""

import collections
import json
import re
import string
from pathlib import Path
from typing import Any


def words(text: str) -> list[str]:
    """Lowercase; drop ASCII punctuation, then articles; split at white space."""
    kept = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def f1_of(prediction: str, gold: str) -> float:
    """The F1 of the words; 1 if neither has any, and 0 if only one has."""
    ours, golden = words(prediction), words(gold)
    if not ours or not golden:
        return float(ours == golden)
    common = sum((collections.Counter(ours) & collections.Counter(golden)).values())
    return 2 * common / (len(ours) + len(golden))


def official_scores(data: str | Path, predictions: str | Path) -> dict[str, float]:
    """Return `f1`, `exact_match` and those of both kinds of questions, in per cent."""
    answers = json.loads(Path(predictions).read_text("utf-8"))
    articles = json.loads(Path(data).read_text("utf-8"))["data"]
    paragraphs = [p for article in articles for p in article["paragraphs"]]
    groups: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
    question: dict[str, Any]
    for question in (qa for paragraph in paragraphs for qa in paragraph["qas"]):
        golds = [a["text"] for a in question["answers"] if words(a["text"])] or [""]
        answer = answers[question["id"]]
        exact = max(float(words(answer) == words(gold)) for gold in golds)
        score = exact, max(f1_of(answer, gold) for gold in golds)
        for group in ("", "HasAns_" if question["answers"] else "NoAns_"):
            groups[group].append(score)
    return {
        f"{group}{name}": 100 * sum(score[i] for score in scores) / len(scores)
        for group, scores in groups.items()
        for i, name in enumerate(("exact_match", "f1"))
    }
