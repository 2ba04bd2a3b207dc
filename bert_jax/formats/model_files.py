"""The small files of a model, read by nothing that trusts them."""

from typing import Any

from etils import epath

from bert_jax.storage.files import (
    parse_json,
    read_json,
    read_json_object,
    require_regular_file,
)

MAX_BYTES = 100_000_000
"""Of a file that is read whole; a tokenizer.json of a million tokens has less."""
REMEDY = "fetch it again"


def read_file(path: epath.Path) -> bytes:
    """The bytes of a regular file of a size that a model's small files have.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is a device or a pipe, or is larger than any of those files.
    """
    _check(path)
    return path.read_bytes()


def read_object(path: epath.Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds something else, or a key twice.
    """
    _check(path)
    return read_json_object(path, REMEDY)


def read_values(path: epath.Path) -> Any:
    """Any JSON value in a file. Errors as `read_object`."""
    _check(path)
    return read_json(path, REMEDY)


def parse_object(content: bytes) -> dict[str, Any]:
    """A JSON object in which no key stands twice.

    Raises:
        ValueError: says what it is instead, as the rest of a sentence.
    """
    values = parse_json(content)
    if not isinstance(values, dict):
        raise ValueError(f"is a JSON {type(values).__name__}; it must be an object")
    return values


def _check(path: epath.Path) -> None:
    require_regular_file(path)
    if (size := path.stat().length) > MAX_BYTES:
        raise ValueError(
            f"{path} has {size} bytes, of {MAX_BYTES} at most; it is none of a model's "
            f"files, so {REMEDY}."
        )
