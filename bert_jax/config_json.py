"""Configurations as JSON: out, in again, and compared."""

import contextlib
import dataclasses
import json
import os
import typing
from typing import Any, TypeVar

from etils import epath

from bert_jax.files import named_errors

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


def from_dict(cls: type[ConfigT], values: dict[str, Any]) -> ConfigT:
    """The configuration of class `cls` that `to_dict` turned into `values`.

    Raises:
        ValueError: a key that `cls` does not have, or a value it refuses.
    """
    hints = typing.get_type_hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ValueError(f"{cls.__name__} has no field {', '.join(unknown)}.")
    return cls(
        **{
            name: from_dict(hints[name], value)
            if dataclasses.is_dataclass(hints[name])
            else tuple(value)
            if isinstance(value, list)
            else value
            for name, value in values.items()
        }
    )


def write_json(values: Any, path: epath.Path) -> None:
    """Write `values` as readable JSON, in one piece or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with named_errors(path), temporary.open("w") as file:
            file.write(json.dumps(values, indent=2) + "\n")
            file.flush()
            if hasattr(file, "fileno"):  # an object store has none, and needs none
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


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
