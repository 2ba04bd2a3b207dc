"""Checks that configurations share: each names the field, its value and the rule."""

import dataclasses
import math
from typing import Any


def require(holds: bool, message: str) -> None:
    """Raise ValueError with `message` unless `holds`."""
    if not holds:
        raise ValueError(message)


def require_types(config: Any) -> None:
    """Whole numbers where they are meant: 1e6 would pass for a number of steps."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        message = f"{field.name}={value!r} must be a"
        if field.type is int:
            require(type(value) is int, f"{message} whole number.")
        elif field.type is float:
            require(type(value) in (int, float), f"{message} number.")


def require_positive(config: Any, *names: str) -> None:
    """Finite, and greater than 0."""
    for name in names:
        value = getattr(config, name)
        holds = math.isfinite(value) and value > 0
        require(holds, f"{name}={value} must be finite and greater than 0.")


def require_not_negative(config: Any, *names: str) -> None:
    """Finite, and at least 0."""
    for name in names:
        value = getattr(config, name)
        holds = math.isfinite(value) and value >= 0
        require(holds, f"{name}={value} must be finite and at least 0.")


def require_share(config: Any, *names: str) -> None:
    """At least 0 and less than 1."""
    for name in names:
        value = getattr(config, name)
        holds = 0 <= value < 1
        require(holds, f"{name}={value} must be at least 0 and less than 1.")


def require_batch_size(batch_size: int) -> None:
    """At least 1."""
    require(batch_size >= 1, f"batch_size={batch_size} must be at least 1.")


def require_seed(config: Any) -> None:
    """What both NumPy and JAX take for a seed without folding two into one."""
    seed = config.seed
    require(0 <= seed < 1 << 32, f"seed={seed} must be from 0 to {(1 << 32) - 1}.")


def require_class_names(labels: tuple[str, ...]) -> None:
    """Texts, none of them blank, each once: predictions go by a class's name."""
    for i, label in enumerate(labels):
        holds = isinstance(label, str) and bool(label.strip())
        require(holds, f"labels names {label!r:.80}; a class's name must be a text.")
        holds = label not in labels[:i]
        require(
            holds,
            f"labels names {label!r:.80} twice, as classes {labels.index(label)} and "
            f"{i}; each class needs a name of its own.",
        )
