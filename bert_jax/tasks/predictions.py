"""Examples and predictions of a split, by row and by example; and their scores."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from bert_jax.data.examples import TokenizedExamples
from bert_jax.storage.files import JsonObject

Example = Any
"""A line, question or sentence of a file; a dataclass of the task's own."""
Prediction = JsonObject
"""What is predicted for one example: JSON values by the names that users see."""


@dataclasses.dataclass(frozen=True)
class Split:
    """The examples of a file, and their tokenized rows."""

    examples: Sequence[Example]
    tokenized: TokenizedExamples


@dataclasses.dataclass(frozen=True)
class SplitOutputs:
    """A split, and what the model computed for each of its tokenized rows."""

    split: Split
    rows: Sequence[dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Splits:
    """The examples to train on, to validate on and to test on, if any."""

    train: Sequence[Example]
    validation: Sequence[Example]
    test: Sequence[Example] = ()


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Examples, and a prediction for each."""

    examples: Sequence[Example]
    values: Sequence[Prediction]


def by_row(batches: Iterable[tuple[np.ndarray, PyTree]], num_rows: int) -> list[PyTree]:
    """Return the outputs of each row, in the order of the rows.

    Args:
        batches: the row numbers of each batch, and its outputs [B, …].
    """
    by_number: dict[int, PyTree] = {}
    for numbers, outputs in batches:
        for i, number in enumerate(numbers.tolist()):
            if number >= 0:  # -1 is padding
                by_number[number] = jax.tree.map(lambda x, i=i: x[i], outputs)
    assert len(by_number) == num_rows, "every row has outputs"
    return [by_number[number] for number in range(num_rows)]


def main_score(scores: dict[str, float]) -> float:
    """Return the first official score, which follows the loss."""
    return scores[main_score_name(scores)]


def main_score_name(scores: Mapping[str, float]) -> str:
    """Return the name of the score that selects the best checkpoint."""
    return next(name for name in scores if name != "loss")


def score_format(name: str) -> str:
    """Return the format of a score in tables and cards.

    An error has the units of the labels, large or small. A threshold is the value of
    one example: rounded, it is another's.
    """
    exact = "" if name.endswith("_threshold") else ".4f"
    return ".4g" if "squared_error" in name else exact


def without_repeats(scores: Mapping[str, float]) -> dict[str, float]:
    """Return scores to be shown: without an F1 that another name says better.

    Of two classes, `f1` is that of the second, which has `f1_NAME`; of a single type of
    entities, `f1_TYPE` is `f1`. Files and Python keep both names.
    """
    repeated = set()
    for part in ("", "before_", "test_"):
        named = [name for name in scores if name.startswith(f"{part}f1_")]
        same = [name for name in named if scores[name] == scores.get(f"{part}f1")]
        if same and f"{part}macro_f1" in scores:
            repeated.add(f"{part}f1")
        elif len(named) == 1:
            repeated.update(same)
    return {name: value for name, value in scores.items() if name not in repeated}
