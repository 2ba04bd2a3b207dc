"""An on-disk cache of tokenized examples, keyed by a hash of all inputs."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from etils import epath

from bert_jax.data.examples import TokenizedExamples
from bert_jax.storage.files import atomic_file, require_regular_file

_ARRAYS = ("tokens", "starts", "second", "example")
_GROUPS = ("by_example", "by_token")


def content_key(*parts: object) -> str:
    """Return the hexadecimal sha256 of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def cached_examples(
    directory: epath.Path, key: str, make: Callable[[], TokenizedExamples]
) -> TokenizedExamples:
    """Return the cached examples; if there are none of this key, make and cache them.

    `key` must be different for each different result of `make`.
    """
    path = directory / f"{key}.npz"
    # An unreadable file is made again. NumPy and zipfile raise many kinds of errors.
    with contextlib.suppress(Exception):
        require_regular_file(path)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            fields: dict[str, Any] = {name: stored[name] for name in _ARRAYS}
            for group in _GROUPS:
                names = [n for n in stored.files if n.startswith(f"{group}/")]
                fields[group] = {n.removeprefix(f"{group}/"): stored[n] for n in names}
            return TokenizedExamples(**fields, choices=int(stored["choices"]))
    examples = make()
    directory.mkdir(parents=True, exist_ok=True)
    arrays = {name: getattr(examples, name) for name in _ARRAYS}
    for group in _GROUPS:
        for name, values in getattr(examples, group).items():
            arrays[f"{group}/{name}"] = values
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, choices=np.array(examples.choices), **arrays)
    return examples
