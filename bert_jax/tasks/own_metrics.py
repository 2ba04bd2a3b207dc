"""Scores that a user's own function computes."""

import importlib
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from bert_jax.config.checks import quoted, require
from bert_jax.tasks.predictions import Example, Prediction, Predictions

ComputeMetrics: TypeAlias = Callable[
    [Sequence[Example], Sequence[Prediction]], Mapping[str, float]
]
"""Takes examples and a prediction for each, and returns scores by their names.

An example has the fields of its dataclass, such as `label`; a prediction is what
`bert-jax predict` prints of it, such as `label` and `probabilities`. The first score
selects the best checkpoint: the higher, the better.
"""
_TAKEN = ("loss", "step", "split")
_PREFIXES = ("test_", "before_", "baseline:")
"""Names that lines of metrics, or the results of a run, have already."""


def load_function(name: str) -> ComputeMetrics | None:
    """Import a function named MODULE:FUNCTION; return None if the name is empty.

    Modules in the current directory are found too. Raise ValueError if there is no such
    function, or its module fails.
    """
    if not name:
        return None
    module, _, function = name.partition(":")
    require(
        bool(module and function),
        f"compute_metrics={name} must be MODULE:FUNCTION, as in my_scores:score for "
        "the function `score` of my_scores.py.",
    )
    if (directory := os.getcwd()) not in sys.path:
        sys.path.append(directory)
    try:
        member = getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"compute_metrics={name} cannot be imported ({reason}); name a function of "
            "a module that Python finds, such as a file in the current directory."
        ) from error
    require(
        callable(member),
        f"compute_metrics={name} is {quoted(member)}; name a function of examples and "
        "predictions that returns scores.",
    )
    return member


def own_scores(function: ComputeMetrics, predictions: Predictions) -> dict[str, float]:
    """Return the scores of a user's function.

    Raise RuntimeError if it fails, or does not return numbers by names that are free.
    """
    name = getattr(function, "__qualname__", repr(function))
    try:
        scores = function(predictions.examples, predictions.values)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise RuntimeError(f"compute_metrics: {name} failed: {reason}") from error
    if isinstance(scores, Mapping) and scores:
        names = [str(key) for key in scores]
        if any(key in _TAKEN or key.startswith(_PREFIXES) for key in names):
            raise RuntimeError(
                f"compute_metrics: {name} returned {quoted(names)}; choose other names "
                f"than {', '.join(_TAKEN)} and those that begin with "
                f"{', '.join(_PREFIXES)}"
            )
        try:
            numbers = dict(zip(names, map(float, scores.values()), strict=True))
        except (TypeError, ValueError):
            numbers = {}  # said below
        if numbers and all(map(math.isfinite, numbers.values())):
            return numbers
    raise RuntimeError(
        f"compute_metrics: {name} returned {quoted(scores)}; return a dict of finite "
        "numbers by the names of the scores."
    )
