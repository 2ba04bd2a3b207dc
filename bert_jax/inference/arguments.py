"""Checks of arguments from Python callers; errors name argument, value and rule."""

import functools
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, ParamSpec, cast

import jax
import numpy as np

Parameters = ParamSpec("Parameters")


def one_or_several(method: Callable[Parameters, Any]) -> Callable[Parameters, Any]:
    """Let a method of a list `texts` take one text, too, and return its result then."""
    of_list: Callable[..., Any] = method

    def call(self: object, texts: object, *args: Any, **kwargs: Any) -> Any:
        if isinstance(texts, str):
            return of_list(self, [texts], *args, **kwargs)[0]
        return of_list(self, texts, *args, **kwargs)

    return cast(Callable[Parameters, Any], functools.wraps(method)(call))


def as_several(values: Any) -> tuple[Any, int | slice]:
    """Return a list of texts or vectors, and the index of their results.

    One text, or one vector, becomes a list of it, and the index that of its result.
    """
    if isinstance(values, str):
        return [values], 0
    if isinstance(values, jax.Array):
        values = np.asarray(values)
    is_array = isinstance(values, np.ndarray) and values.ndim == 1
    if is_array and are_numbers(values):
        return values[None], 0
    return values, slice(None)


def are_numbers(values: np.ndarray) -> bool:
    """Return whether an array holds real numbers, of NumPy's types or bfloat16."""
    return values.dtype.kind in "fiu" or values.dtype == jax.numpy.bfloat16


def is_several(value: object) -> bool:
    """Return whether a value is an ordered collection, of which each item is one."""
    is_one = isinstance(value, str | bytes | bytearray | Mapping | Set)
    is_scalar = getattr(value, "ndim", 1) == 0  # an array without an axis
    is_table = hasattr(value, "columns")  # a table is iterated by columns or names
    return isinstance(value, Iterable) and not (is_one or is_scalar or is_table)


def require_text(name: str, value: object) -> str:
    """Return the value; raise ValueError unless it is a str that UTF-8 can encode."""
    if not isinstance(value, str):
        shown = " ".join(repr(value).split())  # that of an array has several lines
        raise ValueError(
            f"{name}={shown:.80} is of type {type(value).__name__}; it must be a str."
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name}={value!r:.80} holds half of a surrogate pair at {error.start}, "
            "which is not a character; correct it."
        ) from error
    return str(value)  # of NumPy's class, too


def require_texts(name: str, values: object) -> list[str]:
    """Return an ordered collection of texts as a list; raise ValueError for another."""
    items = enumerate(_as_list(name, values))
    return [require_text(f"{name}[{i}]", value) for i, value in items]


def require_texts_or_pairs(name: str, values: object) -> list[tuple[str, ...]]:
    """Return each value as a tuple of one text or two; raise ValueError for a mixture.

    An ordered collection of other things is refused, too.
    """
    examples: list[tuple[str, ...]] = []
    for i, value in enumerate(_as_list(name, values)):
        item = f"{name}[{i}]"
        if is_several(value):
            texts = tuple(require_texts(item, value))
        else:
            texts = (require_text(item, value),)
        if len(texts) not in (1, 2):
            raise ValueError(
                f"{item} has {len(texts)} texts; it must be a str, or a pair."
            )
        examples.append(texts)
        if len(texts) != len(examples[0]):
            raise ValueError(
                f"{item} has {len(texts)} texts and {name}[0] has "
                f"{len(examples[0])}; all must be pairs, or none."
            )
    return examples


def require_two_sides(
    first: object, second: object, names: tuple[str, str] = ("first", "second")
) -> list[tuple[str, str]]:
    """Return the pairs of two texts, or of two lists of as many; else ValueError."""
    if not is_several(first):
        return [(require_text(names[0], first), require_text(names[1], second))]
    sides = require_texts(names[0], first), require_texts(names[1], second)
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"{names[0]} has {len(sides[0])} texts and {names[1]} has {len(sides[1])}; "
            "pass the same number of each."
        )
    return list(zip(*sides, strict=True))


def require_count(name: str, value: object) -> int:
    """Return the value; raise ValueError unless it is a whole number from 1."""
    if isinstance(value, int | np.integer) and type(value) is not bool and value > 0:
        return int(value)
    raise ValueError(f"{name}={value!r:.80} must be at least 1, and a whole number.")


def require_bool(name: str, value: object) -> bool:
    """Return the value; raise ValueError unless it is a bool of Python or NumPy."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise ValueError(f"{name}={value!r:.80} must be True or False.")
    return bool(value)


def _as_list(name: str, values: object) -> list[object]:
    if isinstance(values, str):
        raise ValueError(f"{name} is one string; pass a list of them, as in [text].")
    if not is_several(values):
        shown, kind = " ".join(repr(values).split()), type(values).__name__
        raise ValueError(
            f"{name}={shown:.80} is of type {kind}; it must be a list of texts, such "
            "as a column of a table."
        )
    return list(cast(Iterable[object], values))
