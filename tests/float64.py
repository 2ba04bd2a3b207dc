"""Computation in float64, in which two algorithms that must agree are compared.

In float32 they differ by the order of their sums, and that order is a processor's own:
a tolerance above the rounding of all processors is near to what a small fault changes.
In float64 rounding is 1e-16 of the largest term, and any fault is far above it.
"""

import dataclasses
from typing import Any, Literal

import jax
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.training.gradients import Collectives

AGREEMENT = 1e-11
"""A hundred thousand roundings; a fault of float32's size is a thousand times more."""


@dataclasses.dataclass(frozen=True)
class Float64Config(BertConfig):
    """A model that computes in float64, which no user can ask for."""

    dtype: Literal["float64"] = "float64"


def in_float64(config: BertConfig) -> Float64Config:
    """The same model in float64; use it within `jax.enable_x64(True)`."""
    names = (field.name for field in dataclasses.fields(config))
    values = {name: getattr(config, name) for name in names}
    return Float64Config(**values | {"dtype": "float64"})


def widened(tree: Any) -> Any:
    """A tree with its float32 leaves in float64; others stay, as keys and integers."""

    def widen(leaf: Any) -> Any:
        return leaf.astype(np.float64) if leaf.dtype == np.float32 else leaf

    return jax.tree.map(widen, tree)


def reduced_in_float64(collectives: Collectives) -> Collectives:
    """The same exchange, unless gradients are to be rounded for it."""
    if collectives.reduce_dtype != "float32":
        return collectives
    return dataclasses.replace(collectives, reduce_dtype="float64")
