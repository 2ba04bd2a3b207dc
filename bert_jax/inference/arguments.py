"""Checks of arguments from Python callers; errors name argument, value and rule."""

from collections.abc import Iterable, Mapping, Set


def require_text(name: str, value: object) -> str:
    """Return the value; raise ValueError unless it is a str that UTF-8 can encode."""
    if not isinstance(value, str):
        raise ValueError(
            f"{name}={value!r:.80} is of type {type(value).__name__}; it must be a str."
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name}={value!r:.80} holds half of a surrogate pair at {error.start}, "
            "which is not a character; correct it."
        ) from error
    return value


def require_texts(name: str, values: object) -> list[str]:
    """Return an ordered collection of texts as a list; raise ValueError for another."""
    items = enumerate(_as_list(name, values))
    return [require_text(f"{name}[{i}]", value) for i, value in items]


def require_texts_or_pairs(name: str, values: object) -> list[tuple[str, ...]]:
    """Return each value as a tuple of one text or two.

    Raises:
        ValueError: they are not an ordered collection; one is neither a text nor a
            pair; some are pairs, and some are not.
    """
    examples: list[tuple[str, ...]] = []
    for i, value in enumerate(_as_list(name, values)):
        item = f"{name}[{i}]"
        if isinstance(value, tuple | list):
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


def require_two_sides(first: object, second: object) -> list[tuple[str, str]]:
    """Return the pairs of two texts, or of two lists of as many texts.

    Raises:
        ValueError: they are neither.
    """
    if not isinstance(first, list | tuple):
        return [(require_text("first", first), require_text("second", second))]
    sides = require_texts("first", first), require_texts("second", second)
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"first has {len(sides[0])} texts and second has {len(sides[1])}; pass the "
            "same number of each."
        )
    return list(zip(*sides, strict=True))


def require_count(name: str, value: object) -> int:
    """Return the value; raise ValueError unless it is a whole number from 1."""
    if type(value) is not int or value < 1:
        raise ValueError(
            f"{name}={value!r:.80} must be at least 1, and a whole number."
        )
    return value


def require_bool(name: str, value: object) -> bool:
    """Return the value; raise ValueError unless it is a bool of Python or NumPy."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise ValueError(f"{name}={value!r:.80} must be True or False.")
    return bool(value)


def _as_list(name: str, values: object) -> list[object]:
    if isinstance(values, str):
        raise ValueError(f"{name} is one string; pass a list of them, as in [text].")
    unordered = isinstance(values, Mapping | Set | bytes | bytearray)
    if unordered or not isinstance(values, Iterable):
        raise ValueError(
            f"{name}={values!r:.80} is of type {type(values).__name__}; it must be a "
            "list of texts."
        )
    return list(values)
