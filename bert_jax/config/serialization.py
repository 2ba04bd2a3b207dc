"""Convert configurations to and from JSON values, and compare them."""

import dataclasses
import json
import typing
from collections.abc import Iterable
from typing import Any, TypeVar

from bert_jax.config.checks import did_you_mean, quoted

ConfigT = TypeVar("ConfigT")


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration as nested dicts of JSON values; tuples become lists."""
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return values


def from_dict(cls: type[ConfigT], values: object) -> ConfigT:
    """Return the configuration of class `cls` from the values of `to_dict`.

    A class may have a function `upgraded`, which renames the fields of older versions.
    Raise ValueError if `values` is not a dict, has an unknown key, lacks a required
    one, or has an invalid value.
    """
    name, hints = cls.__name__, typing.get_type_hints(cls)
    if not isinstance(values, dict):
        raise ValueError(f"{name} must be a JSON object, not {quoted(values)}.")
    values = getattr(cls, "upgraded", dict)(values)
    if unknown := [key for key in values if key not in hints]:
        hint = did_you_mean(unknown[0], tuple(hints)) or "."
        keys = ", ".join(str(key)[:60] for key in unknown[:5])
        raise ValueError(f"{name} has no field {keys}{hint}")
    missing = [
        field.name
        for field in dataclasses.fields(typing.cast(Any, cls))
        if field.name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ValueError(f"{name} lacks {', '.join(missing)}.")
    return cls(**{key: _field_value(hints[key], values[key]) for key in values})


def _field_value(hint: object, value: Any) -> object:
    """The value of a field of type `hint`; its class checks it afterwards."""
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value)
    origins = {typing.get_origin(kind) for kind in (hint, *typing.get_args(hint))}
    return tuple(value) if tuple in origins and isinstance(value, list) else value


def with_changes(config: ConfigT, changes: Iterable[tuple[str, Any]]) -> ConfigT:
    """Return a configuration with other values of fields, by their dotted names.

    Raise KeyError if a section does not exist, ValueError if a field does not, or its
    value is invalid.
    """
    values = to_dict(config)
    for name, value in changes:
        *sections, field = name.split(".")
        part = values
        for section in sections:
            part = part[section]
        part[field] = value
    return from_dict(type(config), values)


def differences(
    old: dict[str, object], new: dict[str, object], prefix: str = ""
) -> list[tuple[str, Any, Any]]:
    """The fields that differ between two `to_dict` results: (dotted name, old, new)."""
    changed = []
    for name in old.keys() | new.keys():
        a, b = old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            changed += differences(a, b, f"{prefix}{name}.")
        elif a != b:
            changed.append((prefix + name, a, b))
    return sorted(changed)
