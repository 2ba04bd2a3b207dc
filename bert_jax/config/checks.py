"""Checks that configurations share: each names the field, its value and the rule."""

import dataclasses
import difflib
import functools
import math
import struct
import types
import typing
from collections.abc import Hashable
from typing import Any

MAX_INT = 2**31 - 1
"""Steps, ids and sizes are int32 on the devices."""
SMALLEST_FLOAT32, LARGEST_FLOAT32 = 2.0**-126, (2 - 2.0**-23) * 2.0**127
"""Smaller numbers are flushed to 0 on the devices, larger ones are infinite."""


def require(holds: bool, message: str) -> None:
    """Raise ValueError with `message` unless `holds`."""
    if not holds:
        raise ValueError(message)


def shown(value: Any, limit: int = 60) -> str:
    """A value as a message shows it: `repr`, its middle left out where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python prints 4,300 digits and no more
        return "a number of thousands of digits"
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}…{text[-half:]}"


@functools.cache
def field_types(cls: Hashable) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(typing.cast(Any, cls))
    return {field.name: hints[field.name] for field in fields}


def require_types(config: Any) -> None:
    """Check each field of a dataclass against its type.

    Raises:
        ValueError: a value is of another type, is none of a field's choices, or is a
            number that 32 bits do not hold.
    """
    cls: Any = type(config)
    for name, hint in field_types(cls).items():
        require_type(name, getattr(config, name), hint)


def require_type(name: str, value: Any, hint: Any) -> None:
    """Check one value against the type `hint`.

    That is int, float, bool, str, a dataclass, a Literal of strings, a tuple of any
    number of one of them, or one of them or None.

    Raises:
        ValueError: it is of another type; `name` is what the message calls it.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        _require_choice(name, value, arguments)
    elif origin is tuple:
        _require_tuple(name, value, arguments[0])
    elif origin in (types.UnionType, typing.Union):
        (hint,) = (part for part in arguments if part is not type(None))
        if value is not None:
            require_type(name, value, hint)
    elif dataclasses.is_dataclass(hint):
        kind = getattr(hint, "__name__", "")
        good = isinstance(value, typing.cast(type, hint))
        require(good, f"{name}={shown(value)} must be a {kind}.")
    else:
        _REQUIRE[hint](name, value)


def _require_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if type(value) is str and value in choices:
        return
    listed = ", ".join(choice or "''" for choice in choices)
    hint = did_you_mean(value, choices)
    raise ValueError(f"{name}={shown(value)} must be one of {listed}{hint or '.'}")


def did_you_mean(value: Any, choices: tuple[str, ...]) -> str:
    """What follows a message about `value`: the choice that is like it, if one is."""
    if not isinstance(value, str):
        return ""
    word = value[:100].lower().replace("-", "_").replace(" ", "_")
    by_word = {choice.replace("-", "_"): choice for choice in choices if choice}
    near = difflib.get_close_matches(word, by_word, n=1)
    return f"; did you mean {by_word[near[0]]!r}?" if near else ""


def _require_tuple(name: str, value: Any, element: Any) -> None:
    kind = "words" if element is str else "numbers"
    example = value if isinstance(value, list) else [value]
    require(
        type(value) is tuple,
        f"{name}={shown(value)} must be a tuple of {kind}; "
        f"write {shown(tuple(example))}.",
    )
    for i in range(len(value)):
        require_type(f"{name}[{i}]", value[i], element)


def _require_bool(name: str, value: Any) -> None:
    require(type(value) is bool, f"{name}={shown(value)} must be True or False.")


def _require_str(name: str, value: Any) -> None:
    require(type(value) is str, f"{name}={shown(value)} must be a string.")
    require("\0" not in value, f"{name}={shown(value)} must not hold a NUL character.")


def _require_int(name: str, value: Any) -> None:
    require(type(value) is int, f"{name}={shown(value)} must be a whole number.")
    require(
        # A seed is an unsigned number, with a rule of its own.
        abs(value) <= MAX_INT or name == "seed",
        f"{name}={shown(value)} is too large; it must be at most {MAX_INT} in "
        "size, for it is a 32-bit number.",
    )


def _require_float(name: str, value: Any) -> None:
    require(type(value) in (int, float), f"{name}={shown(value)} must be a number.")
    require(
        not isinstance(value, float) or math.isfinite(value),
        f"{name}={shown(value)} must be finite.",
    )
    require(
        abs(value) <= LARGEST_FLOAT32,
        f"{name}={shown(value)} is infinite in float32; lower it to at most "
        f"{LARGEST_FLOAT32:.1e} in size.",
    )
    require(
        value == 0 or abs(value) >= SMALLEST_FLOAT32,
        f"{name}={shown(value)} is 0 in float32; give 0, or at least "
        f"{SMALLEST_FLOAT32:.1e}.",
    )


_REQUIRE = {
    bool: _require_bool,
    str: _require_str,
    int: _require_int,
    float: _require_float,
}


def as_float32(value: float) -> float:
    """The number of float32 that is closest."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


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


def require_fraction(config: Any, *names: str) -> None:
    """At least 0 and less than 1, as float32 holds it."""
    for name in names:
        value = getattr(config, name)
        holds = 0 <= value < 1
        require(holds, f"{name}={value} must be at least 0 and less than 1.")
        holds = as_float32(value) < 1
        require(holds, f"{name}={value} is 1 in float32; it must be less than that.")


def require_batch_size(batch_size: int) -> None:
    """At least 1."""
    require(batch_size >= 1, f"batch_size={batch_size} must be at least 1.")


def require_seed(config: Any) -> None:
    """What both NumPy and JAX take for a seed without folding two into one."""
    seed = config.seed
    holds = 0 <= seed < 1 << 32
    require(holds, f"seed={shown(seed)} must be from 0 to {(1 << 32) - 1}.")


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
