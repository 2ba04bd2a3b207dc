"""Configurations as JSON: out, in again, and compared."""

import dataclasses
import typing
from typing import Any, TypeVar

from bert_jax.config.checks import did_you_mean, shown

ConfigT = TypeVar("ConfigT")


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration as nested dicts of JSON values."""
    values: dict[str, Any] = _as_read_back(dataclasses.asdict(config))
    return values


def _as_read_back(value: Any) -> Any:
    """JSON has lists alone, where a configuration has tuples."""
    if isinstance(value, dict):
        return {name: _as_read_back(part) for name, part in value.items()}
    return list(value) if isinstance(value, (list, tuple)) else value


def from_dict(cls: type[ConfigT], values: Any) -> ConfigT:
    """The configuration of class `cls` that `to_dict` turned into `values`.

    Raises:
        ValueError: `values` is no dict, has a key that `cls` does not have, lacks one,
            or holds a value that `cls` refuses.
    """
    name, hints = cls.__name__, typing.get_type_hints(cls)
    if not isinstance(values, dict):
        raise ValueError(f"{name} must be a JSON object, not {shown(values)}.")
    if unknown := [key for key in values if key not in hints]:
        near = did_you_mean(unknown[0], tuple(hints)) or "."
        keys = ", ".join(str(key)[:60] for key in unknown[:5])
        raise ValueError(f"{name} has no field {keys}{near}")
    missing = [
        field.name
        for field in dataclasses.fields(typing.cast(Any, cls))
        if field.name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ValueError(f"{name} lacks {', '.join(missing)}.")
    return cls(**{key: _field(hints[key], values[key]) for key in values})


def _field(hint: Any, value: Any) -> Any:
    """The value of a field; what it must be, the class itself checks."""
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value)
    is_tuple = typing.get_origin(hint) is tuple and isinstance(value, list)
    return tuple(value) if is_tuple else value


def differences(
    old: dict[str, Any], new: dict[str, Any], prefix: str = ""
) -> list[tuple[str, Any, Any]]:
    """The fields in which two `to_dict` results differ: (dotted name, old, new)."""
    found = []
    for name in old.keys() | new.keys():
        a, b = old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{prefix}{name}.")
        elif a != b:
            found.append((prefix + name, a, b))
    return sorted(found)
