"""Scores that a user's own function computes."""

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from bert_jax.config.checks import quoted, require
from bert_jax.tasks.finetuning_task import Example, Prediction, Predictions

ComputeMetrics: TypeAlias = Callable[
    [Sequence[Example], Sequence[Prediction]], Mapping[str, float]
]
"""Takes examples and a prediction for each, and returns scores by their names.

An example has the fields of its dataclass, such as `label`; a prediction is what
`bert-jax predict` prints of it, such as `label` and `probabilities`. The first score
selects the best checkpoint: the higher, the better.
"""


def load_function(name: str) -> ComputeMetrics | None:
    """Import a function named MODULE:FUNCTION; return None if the name is empty.

    Modules in the current directory are found too.

    Raises:
        ValueError: there is no such function, or its module fails.
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
    except Exception as error:
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


def with_own_scores(
    official: dict[str, float],
    function: ComputeMetrics | None,
    predictions: Predictions,
) -> dict[str, float]:
    """Return the scores of a user's function, if there is one, before the official.

    Of two scores with one name the user's is kept.

    Raises:
        RuntimeError: the function fails, or does not return numbers by names.
    """
    own = _own_scores(function, predictions) if function else {}
    return own | {name: value for name, value in official.items() if name not in own}


def _own_scores(function: ComputeMetrics, predictions: Predictions) -> dict[str, float]:
    """Call the function; raise RuntimeError as `with_own_scores`."""
    name = getattr(function, "__qualname__", repr(function))
    try:
        scores = function(predictions.examples, predictions.values)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise RuntimeError(f"compute_metrics: {name} failed: {reason}") from error
    if isinstance(scores, Mapping) and scores and "loss" not in scores:
        try:
            return {str(key): float(value) for key, value in scores.items()}
        except (TypeError, ValueError):
            pass  # said below
    raise RuntimeError(
        f"compute_metrics: {name} returned {quoted(scores)}; return a dict of numbers "
        "by the names of the scores, and none with the name loss."
    )
