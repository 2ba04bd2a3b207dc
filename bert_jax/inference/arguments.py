"""Checks of what Python callers pass: each names the argument, the value, the rule."""

from collections.abc import Iterable, Mapping, Set
from typing import Any

_ONE_STRING = "texts is one string; pass a list of them, as in [text]."


def require_text(name: str, value: Any) -> str:
    """The value, if it is a text without half a surrogate pair.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str):
        raise ValueError(
            f"{name}={value!r:.80} is of type {type(value).__name__}; it must be a str."
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name}={value!r:.80} holds half of a surrogate pair at {error.start}, "
            "which is no character; mend it."
        ) from error
    return value


def require_texts(name: str, values: Any) -> list[str]:
    """The values as a list, if they are texts in an order.

    Raises:
        ValueError: they are no list or the like, or one is no text.
    """
    return [
        require_text(f"{name}[{i}]", value)
        for i, value in enumerate(_listed(name, values))
    ]


def require_texts_or_pairs(name: str, values: Any) -> list[tuple[str, ...]]:
    """Each value as a tuple of one text or two, all of as many.

    Raises:
        ValueError: they are no list or the like; one is neither a text nor a pair; some
            are pairs, and some are not.
    """
    found: list[tuple[str, ...]] = []
    for i, value in enumerate(_listed(name, values)):
        place = f"{name}[{i}]"
        if isinstance(value, tuple | list):
            found.append(tuple(require_texts(place, value)))
        else:
            found.append((require_text(place, value),))
        if len(found[-1]) not in (1, 2):
            raise ValueError(
                f"{place} has {len(found[-1])} texts; it must be a str, or a pair."
            )
        if len(found[-1]) != len(found[0]):
            raise ValueError(
                f"{place} has {len(found[-1])} texts and {name}[0] has "
                f"{len(found[0])}; all must be pairs, or none."
            )
    return found


def require_count(name: str, value: Any) -> int:
    """The value, if it is a whole number of at least 1.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not int or value < 1:
        raise ValueError(
            f"{name}={value!r:.80} must be at least 1, and a whole number."
        )
    return value


def require_bool(name: str, value: Any) -> bool:
    """The value, if it is True or False, of Python or of NumPy.

    Raises:
        ValueError: it is neither.
    """
    if type(value).__name__ not in ("bool", "bool_"):
        raise ValueError(f"{name}={value!r:.80} must be True or False.")
    return bool(value)


def _listed(name: str, values: Any) -> list[Any]:
    if isinstance(values, str):
        raise ValueError(_ONE_STRING.replace("texts", name))
    unordered = isinstance(values, Mapping | Set | bytes | bytearray)
    if unordered or not isinstance(values, Iterable):
        raise ValueError(
            f"{name}={values!r:.80} is of type {type(values).__name__}; it must be a "
            "list of texts."
        )
    return list(values)
