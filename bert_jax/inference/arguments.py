"""Checks of arguments from Python callers; errors name argument, value and rule."""

from collections.abc import Iterable, Mapping, Set

_ONE_STRING = "texts is one string; pass a list of them, as in [text]."


def require_text(name: str, value: object) -> str:
    """Return the value if it is a str that UTF-8 can encode.

    Raises:
        ValueError: it is not.
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
            "which is not a character; correct it."
        ) from error
    return value


def require_texts(name: str, values: object) -> list[str]:
    """Return the values as a list if they are an ordered collection of texts.

    Raises:
        ValueError: they are not, or one is not a text.
    """
    return [
        require_text(f"{name}[{i}]", value)
        for i, value in enumerate(_as_list(name, values))
    ]


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


def require_count(name: str, value: object) -> int:
    """Return the value if it is a whole number of at least 1.

    Raises:
        ValueError: it is not.
    """
    if type(value) is not int or value < 1:
        raise ValueError(
            f"{name}={value!r:.80} must be at least 1, and a whole number."
        )
    return value


def require_bool(name: str, value: object) -> bool:
    """Return the value if it is True or False, of Python or of NumPy.

    Raises:
        ValueError: it is not.
    """
    if type(value).__name__ not in ("bool", "bool_"):
        raise ValueError(f"{name}={value!r:.80} must be True or False.")
    return bool(value)


def _as_list(name: str, values: object) -> list[object]:
    if isinstance(values, str):
        raise ValueError(_ONE_STRING.replace("texts", name))
    unordered = isinstance(values, Mapping | Set | bytes | bytearray)
    if unordered or not isinstance(values, Iterable):
        raise ValueError(
            f"{name}={values!r:.80} is of type {type(values).__name__}; it must be a "
            "list of texts."
        )
    return list(values)
