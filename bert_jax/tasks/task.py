"""What the training loop needs to know of anything that can be trained."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Key

from bert_jax.losses import Sum

Batch = dict[str, np.ndarray]
"""One host's rows by field; the first axis of every field is the row."""
Sums = dict[str, Sum]
Counts = dict[str, Float[Array, ""]]


@dataclasses.dataclass(frozen=True)
class Task:
    """A model, its batches, and its losses. No task calls jit or names a mesh."""

    model: nn.Module
    initialise: Callable[[Key[Array, ""]], Any]
    """Key → parameters."""
    batch: Callable[[int], Batch]
    """Step → this host's share of that step's rows."""
    examples: Callable[[int], np.ndarray]
    """Step → the numbers of all hosts' rows of that step."""
    draw: Callable[[dict[str, jax.Array], Key[Array, ""]], tuple[Any, Counts]]
    """Rows, key → what `loss` takes, with all that is left to chance drawn except
    dropout, and the count of each objective in it. Every array's first axis is the row.
    """
    loss: Callable[[Any, Any, Key[Array, ""]], Sums]
    """Parameters, drawn rows or a part of them, key → sums and counts by name, with
    dropout."""
    evaluate: Callable[[Any, dict[str, jax.Array]], Sums]
    """Parameters, rows → the same, without dropout and with nothing left to chance."""
    evaluation_batches: Callable[[], Iterator[Batch]]
    """This host's share of the validation rows, each once, in batches of one shape."""
    score: Callable[[dict[str, float]], dict[str, float]]
    """Means over the validation rows → what is reported of them."""
    objective: tuple[str, ...]
    """The names whose means are added up to what is minimised."""
    tokens: Callable[[Batch], int]
    """How many real tokens a batch holds, padding left out."""
    flops_per_step: float
    """Floating-point operations that the model needs for one training step."""
