"""Read the small files of a model, which may come from anyone."""

from typing import Any

from etils import epath

from bert_jax.storage.files import (
    JsonObject,
    file_size,
    read_json,
    read_json_object,
    require_regular_file,
)

MAX_BYTES = 100_000_000
"""Limit of a file that is read at once; a tokenizer.json of a million tokens is
smaller."""
CARD = "README.md"
"""The model card."""
REMEDY = "fetch it again"


def read_file(path: epath.Path) -> bytes:
    """Return the content of a file.

    Raise FileNotFoundError if there is no such file, ValueError if it is not a regular
    file, or larger than `MAX_BYTES`.
    """
    return _checked(path).read_bytes()


def read_object(path: epath.Path) -> JsonObject:
    """Return the JSON object in a file.

    Raise FileNotFoundError if there is no such file, ValueError if it is not a JSON
    object, or has a key twice.
    """
    return read_json_object(_checked(path), REMEDY)


def read_object_or_empty(path: epath.Path) -> JsonObject:
    return read_object(path) if path.exists() else {}


def read_values(path: epath.Path) -> Any:
    """Return the JSON value in a file; raise ValueError if it is damaged."""
    return read_json(_checked(path), REMEDY)


def short_reason(error: BaseException, limit: int = 160) -> str:
    """Return a library's message on one line, cut to `limit` characters."""
    return " ".join(str(error).split())[:limit]


def _checked(path: epath.Path) -> epath.Path:
    require_regular_file(path)
    if (size := file_size(path)) > MAX_BYTES:
        raise ValueError(
            f"{path} has {size} bytes, but the files of a model that are read at once "
            f"have {MAX_BYTES} at most; {REMEDY}."
        )
    return path
