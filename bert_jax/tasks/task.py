"""What the training loop needs to know of anything that can be trained."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from bert_jax.model.losses import Sum

Batch = dict[str, np.ndarray]
"""One host's rows by field; the first axis of every field is the row."""
Sums = dict[str, Sum]
Counts = dict[str, Float[Array, ""]]


@dataclasses.dataclass(frozen=True)
class Task:
    """Batches, and what is computed of them. No task calls jit or names a mesh."""

    initialise: Callable[[Key[Array, ""]], Any]
    """Key → parameters."""
    batch: Callable[[int], Batch]
    """Step → this host's share of that step's rows."""
    examples: Callable[[int], np.ndarray]
    """Step → the numbers of all hosts' rows of that step."""
    draw: Callable[[dict[str, jax.Array], Key[Array, ""]], tuple[Any, Counts]]
    """Rows, key → what `loss` takes, with all that is left to chance drawn except
    dropout, and the count of each objective in it. Every array's first axis is the row.
    A device calls it for its own rows alone; what it draws of a row must not depend on
    the others."""
    loss: Callable[[Any, Any, Key[Array, ""]], Sums]
    """Parameters, drawn rows or a part of them, key → sums and counts by name, with
    dropout."""
    evaluate: Callable[[Any, dict[str, jax.Array]], tuple[Sums, dict[str, jax.Array]]]
    """Parameters, rows → the same, without dropout and with nothing left to chance; and
    what `score` needs of each row."""
    evaluation_batches: Callable[[], Iterator[Batch]]
    """This host's share of the validation rows, each once."""
    score: Callable[[dict[str, float], list[Batch]], dict[str, float]]
    """Means over the validation rows, and what `evaluate` gave of each batch of them →
    what is reported."""
    selection_score: Callable[[dict[str, float]], float]
    """Scores → what the best checkpoint has most of."""
    objective: tuple[str, ...]
    """The names whose means are added up to what is minimised."""
    tokens: Callable[[Batch], int]
    """How many real tokens a batch holds, padding left out."""
    flops: Callable[[Batch], float]
    """Floating-point operations that the model needs to train on a batch of all hosts
    whose share here is this one."""
    one_shape: bool = True
    """Whether all batches have the same shape."""
