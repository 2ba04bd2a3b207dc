"""Checks of configuration values; messages name the field, its value and the rule."""

import dataclasses
import difflib
import functools
import inspect
import math
import os
import re
import struct
import types
import typing
from collections.abc import Iterable
from typing import Any, Self

RESOLVED = {"resolved": True}
"""Metadata of a field that a run fills in; it is not a command-line option."""

MAX_SEED = (1 << 32) - 1
MAX_INT = 2**31 - 1
"""Steps, ids and sizes are int32 on the devices."""
SMALLEST_FLOAT32, LARGEST_FLOAT32 = 2.0**-126, (2 - 2.0**-23) * 2.0**127
"""Devices flush smaller numbers to 0, and make larger ones infinite."""


def require(holds: bool, message: str) -> None:
    """Raise ValueError with `message` unless `holds`."""
    if not holds:
        raise ValueError(message)


def quoted(value: object) -> str:
    """The `repr` of a value for a message, with the middle left out if it is long."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more than 4,300 digits
        return "a number of thousands of digits"
    text = text if "\n" not in text else " ".join(text.split())  # as of a table
    return text if len(text) <= 60 else f"{text[:30]}…{text[-30:]}"


@functools.cache
def field_types(cls: Any) -> dict[str, object]:
    """The types of a dataclass's fields."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def require_types(config: object) -> None:
    """Check each field against its type; NumPy's values and paths become Python's."""
    cls: Any = type(config)
    for name, hint in field_types(cls).items():
        if (value := _plain(given := getattr(config, name))) is not given:
            object.__setattr__(config, name, value)
        require_type(name, value, hint)


def _plain(value: Any) -> Any:
    """Return NumPy's values as Python's and paths as str, also each of a collection."""
    if type(value) in (tuple, list):
        return type(value)(map(_plain, value))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    is_of_numpy = type(value).__module__ == "numpy" and hasattr(value, "tolist")
    return value.tolist() if is_of_numpy else value


def require_type(name: str, value: object, hint: object) -> None:
    """Raise ValueError unless a value has the type `hint`; messages call it `name`.

    The hint is int, float, bool, str, a dataclass, a Literal of strings, a tuple of any
    number of one of these, one of these or None, a Literal or a tuple. Numbers must fit
    into 32 bits.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        _require_choice(name, value, arguments)
    elif origin is tuple:
        _require_tuple(name, value, arguments[0])
    elif origin in (types.UnionType, typing.Union):
        _require_one_of(name, value, arguments)
    elif dataclasses.is_dataclass(hint):
        cls = typing.cast(type, hint)
        holds = isinstance(value, cls)
        require(holds, f"{name}={quoted(value)} must be a {cls.__name__}.")
    else:
        _require_scalar(name, value, hint)


def _require_one_of(name: str, value: object, hints: tuple[object, ...]) -> None:
    """Check a value against a type, and None or the words that it may also be."""
    if value is None and type(None) in hints:
        return
    others = [hint for hint in hints if hint is not type(None)]
    literals = [hint for hint in others if typing.get_origin(hint) is typing.Literal]
    words = [word for literal in literals for word in typing.get_args(literal)]
    if type(value) is str and value in words:
        return
    tuples = [hint for hint in others if typing.get_origin(hint) is tuple]
    if tuples and isinstance(value, tuple | list):
        return require_type(name, value, tuples[0])
    hint = next(hint for hint in others if len(others) == 1 or hint not in literals)
    if not words or hint in literals or type(value) in (int, float):
        return require_type(name, value, hint)
    noun = _SCALARS[hint][1]
    raise ValueError(f"{name}={quoted(value)} must be {noun} or {', '.join(words)}.")


def _require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if type(value) is str and value in choices:
        return
    listed = ", ".join(choice or "''" for choice in choices)
    hint = did_you_mean(value, choices)
    raise ValueError(f"{name}={quoted(value)} must be one of {listed}{hint or '.'}")


def spaced(value: str) -> str:
    """The end of a message on values that commas join: how they are written; or ""."""
    apart = " ".join(value.replace(",", " ").split())
    return f"; write several with spaces between: {apart}." if "," in value else ""


def did_you_mean(value: object, choices: tuple[str, ...]) -> str:
    """The end of a message: "; did you mean …?" with the closest choice, or ""."""
    if not isinstance(value, str):
        return ""
    if "," in value and {word.strip() for word in value.split(",")} <= {*choices}:
        return spaced(value)
    word = value[:100].lower().replace("-", "_").replace(" ", "_")
    by_word = {choice.replace("-", "_"): choice for choice in choices if choice}
    matches = difflib.get_close_matches(word, by_word, n=1)
    return f"; did you mean {by_word[matches[0]]!r}?" if matches else ""


def _require_tuple(name: str, value: Any, element: object) -> None:
    kind = "words" if element is str else "numbers"
    is_one = isinstance(value, str | bytes) or not isinstance(value, Iterable)
    example = (value,) if is_one else tuple(value)
    example = () if value is None else example
    rule = f"must be a tuple of {kind}; write {quoted(example)}"
    require(type(value) is tuple, f"{name}={quoted(value)} {rule}.")
    for i, item in enumerate(value):
        require_type(f"{name}[{i}]", item, element)


_SCALARS: dict[object, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "True or False"),
    str: ((str,), "a string"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}
"""By the type of a field: the types of its values, and their name in messages."""


def _require_scalar(name: str, value: Any, hint: object) -> None:
    classes, noun = _SCALARS[hint]
    start = f"{name}={quoted(value)}"
    # Of str alone there are subclasses that hold more: rows in memory by their name.
    holds = type(value) in classes or (hint is str and isinstance(value, str))
    require(holds, f"{start} must be {noun}.")
    if hint is str:
        require("\0" not in value, f"{start} must not hold a NUL character.")
    elif hint is int:
        require(
            # A seed is an unsigned number; see `require_seed`.
            abs(value) <= MAX_INT or name == "seed",
            f"{start} is too large; it must be at most {MAX_INT} in size, since it is "
            "a 32-bit number.",
        )
    elif hint is float:
        largest, smallest = LARGEST_FLOAT32, SMALLEST_FLOAT32
        require(-math.inf < value < math.inf, f"{start} must be finite.")
        rule = f"infinite in float32; lower it to at most {largest:.1e} in size"
        require(abs(value) <= largest, f"{start} is {rule}.")
        rule = f"0 in float32; give 0, or at least {smallest:.1e}"
        require(value == 0 or abs(value) >= smallest, f"{start} is {rule}.")


def require_batch_size(batch_size: int) -> None:
    """Check that `batch_size` is at least 1."""
    is_whole = isinstance(batch_size, int) or hasattr(batch_size, "__index__")
    require(is_whole, f"batch_size={quoted(batch_size)} must be a whole number.")
    require(batch_size >= 1, f"batch_size={batch_size} must be at least 1.")


def require_delimiter(delimiter: str) -> None:
    """Check that the separator of a table's fields is one character, or its name.

    It is no letter, digit, quote or end of a line.
    """
    is_one = len(delimiter) == 1 and not delimiter.isalnum()
    require(
        delimiter in ("", "tab", r"\t") or (is_one and delimiter not in "\"'\r\n\0"),
        f"delimiter={delimiter!r} must be a character such as ; or |, or tab.",
    )


def require_seed(config: Any) -> None:
    """Check that the seed is an unsigned 32-bit number, as JAX's keys need it."""
    seed = config.seed
    holds = 0 <= seed <= MAX_SEED
    require(holds, f"seed={quoted(seed)} must be from 0 to {MAX_SEED}.")


def require_beam_engine(config: Any) -> None:
    """Check that options of Apache Beam are given to the engine beam only."""
    require(
        config.engine == "beam" or not config.beam_options,
        "beam_options are given but engine=local; pass --engine beam.",
    )


def require_class_names(labels: tuple[str, ...]) -> None:
    """Check that class names are distinct and not blank."""
    numbers: dict[str, int] = {}
    for i, label in enumerate(labels):
        holds = isinstance(label, str) and bool(label.strip())
        require(holds, f"labels has {label!r:.80}; a class name must not be blank.")
        first = numbers.setdefault(label, i)
        require(
            first == i,
            f"labels has {label!r:.80} twice, as classes {first} and {i}; each class "
            "needs a name of its own.",
        )


class CheckedConfig:
    """A base of frozen dataclasses that are made with `repr=False`."""

    def __post_init__(self) -> None:
        require_types(self)

    def __repr__(self) -> str:
        """Return Python that makes an equal object, without fields at their default.

        The default is the field's: of a nested configuration it may be another than
        what its class begins with.
        """
        config: Any = self
        arguments = [
            f"{field.name}={getattr(config, field.name)!r}"
            for field in dataclasses.fields(config)
            if getattr(config, field.name) != field.default
        ]
        return f"{type(self).__qualname__}({', '.join(arguments)})"

    def changed(self, **fields: Any) -> Self:
        """Return the configuration with other values of fields.

        A dict changes fields of a nested configuration: `data={"path": "rows"}`.
        """
        config: Any = self
        for name, value in fields.items():
            nested = getattr(self, name, None)
            if isinstance(value, dict) and isinstance(nested, CheckedConfig):
                fields[name] = nested.changed(**value)
        changed: Self = dataclasses.replace(config, **fields)
        return changed

    def require_positive(self, *names: str) -> None:
        """Check that fields, which have their types, are greater than 0."""
        for name in names:
            value = getattr(self, name)
            require(value > 0, f"{name}={value} must be finite and greater than 0.")

    def require_not_negative(self, *names: str) -> None:
        """Check that fields, which have their types, are at least 0."""
        for name in names:
            value = getattr(self, name)
            require(value >= 0, f"{name}={value} must be finite and at least 0.")

    def require_fraction(self, *names: str) -> None:
        """Check that fields are at least 0 and less than 1, also in float32."""
        for name in names:
            value = getattr(self, name)
            holds = 0 <= value < 1
            require(holds, f"{name}={value} must be at least 0 and less than 1.")
            holds = struct.unpack("f", struct.pack("f", value))[0] < 1
            require(holds, f"{name}={value} is 1 in float32; it must be less than 1.")

    def require_effect(self, name: str, holds: bool, why_not: str) -> None:
        """Check that a field is at its default unless another one gives it an effect.

        The message ends with `why_not`, which has a remedy.
        """
        value, default = getattr(self, name), getattr(type(self), name)
        rule = f"{name}={value} has no effect with {why_not}"
        require(holds or value == default, rule)


@functools.cache
def field_descriptions(cls: type) -> dict[str, str]:
    """Return the string below each field of a dataclass, in one line.

    They become the help of options. Python does not keep them: the source is read.
    """
    source = "".join(inspect.getsource(base) for base in reversed(cls.__mro__[:-1]))
    field = r'^    (\w+): .*(?:\n    [ \])].*)*\n    """([^"]*)"""'
    docstrings = re.findall(field, source, re.MULTILINE)
    return {name: " ".join(docstring.split()) for name, docstring in docstrings}
