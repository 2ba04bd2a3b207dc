"""The small files of a model, read by nothing that trusts them."""

import json
from typing import Any

from etils import epath

MAX_BYTES = 100_000_000
"""Of a file that is read whole; a tokenizer.json of a million tokens has less."""


def read_file(path: epath.Path) -> bytes:
    """The bytes of a regular file of a size that a model's small files have.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is a device or a pipe, or is larger than any of those files.
    """
    require_file(path)
    if (size := path.stat().length) > MAX_BYTES:
        raise ValueError(
            f"{path} has {size} bytes, of {MAX_BYTES} at most; it is none of a "
            "model's files, so fetch it again."
        )
    return path.read_bytes()


def require_file(path: epath.Path) -> None:
    """Refuse what would be read for ever.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no regular file, nor a link to one.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; fetch it.")
    if not path.is_file():
        raise ValueError(f"{path} is not a regular file; put the model's file there.")


def read_json(path: epath.Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds something else, or a key twice.
    """
    content = read_file(path)
    try:
        return parse_object(content)
    except ValueError as error:
        raise ValueError(f"{path} {error} Fetch it again.") from error


def parse_object(content: bytes) -> dict[str, Any]:
    """A JSON object in which no key stands twice.

    Raises:
        ValueError: says what it is instead, as the rest of a sentence.
    """
    values = parse_json(content)
    if not isinstance(values, dict):
        raise ValueError(f"is a JSON {type(values).__name__}; it must be an object.")
    return values


def parse_json(content: bytes) -> Any:
    """Any JSON value, in none of whose objects a key stands twice. Errors as above."""

    def pairs_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"the key {twice!r} stands twice")
        return values

    try:
        return json.loads(content, object_pairs_hook=pairs_once)
    except RecursionError:
        raise ValueError("is not JSON that can be read: it nests too deep.") from None
    except ValueError as error:
        raise ValueError(f"is not JSON that can be read: {error}.") from error
