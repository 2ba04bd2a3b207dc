"""Tokenized examples kept on disk, by a hash of all that they are made of."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from etils import epath

from bert_jax.data.examples import Examples
from bert_jax.storage.files import require_regular_file

_ARRAYS = ("tokens", "starts", "second", "record")
_GROUPS = ("by_example", "by_token")


def content_key(*parts: Any) -> str:
    """Hexadecimal sha256 of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def cached_examples(
    directory: epath.Path, key: str, make: Callable[[], Examples]
) -> Examples:
    """What `make` gives, from `directory` where it was made before.

    Args:
        key: that differs wherever what `make` gives would.
    """
    path = directory / f"{key}.npz"
    # A file that cannot be read is made again: it holds nothing that is not elsewhere.
    # NumPy's parser and zipfile raise errors of many kinds.
    with contextlib.suppress(Exception):
        require_regular_file(path)
        return _read(path)
    examples = make()
    directory.mkdir(parents=True, exist_ok=True)
    arrays = {name: getattr(examples, name) for name in _ARRAYS}
    for group in _GROUPS:
        for name, values in getattr(examples, group).items():
            arrays[f"{group}/{name}"] = values
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        np.savez(file, choices=np.array(examples.choices), **arrays)
    temporary.replace(path)
    return examples


def _read(path: epath.Path) -> Examples:
    fields: dict[str, Any] = {group: {} for group in _GROUPS}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        for name in arrays.files:
            group, _, field = name.partition("/")
            if field:
                fields[group][field] = arrays[name]
            else:
                fields[name] = arrays[name]
    return Examples(**fields | {"choices": int(fields["choices"])})
