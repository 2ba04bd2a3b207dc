"""What is asked of files: regular ones to read, and errors that say which."""

import contextlib
import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Any

from etils import epath

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_regular_file(path: str | os.PathLike[str]) -> bool:
    """Whether it is a regular file or a link to one; in a bucket all are.

    Not epath's `is_file`, to which a pipe is one too.
    """
    return "://" in os.fspath(path) or os.path.isfile(path)


def require_regular_file(path: str | os.PathLike[str], what: str = "") -> None:
    """Refuse what reading may never end with: a FIFO, a device, a socket.

    Args:
        path: an address in a bucket is taken as it is.
        what: the option or file that named it, for the message.

    Raises:
        FileNotFoundError: there is nothing of this name.
        ValueError: it is no regular file, nor a link to one.
    """
    name = os.fspath(path)
    if "://" in name:
        return
    told = f"{what} {name}".lstrip()
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{told} is missing.") from error
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe, device or socket"
        raise ValueError(f"{told} is not a regular file but {kind}; name a file.")


def read_json(path: epath.Path, remedy: str) -> Any:
    """The JSON value in a file of ours.

    Args:
        remedy: what to do where it is damaged, for the message.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no regular file, not JSON, or holds a key twice.
    """
    require_regular_file(path)
    content = path.read_bytes()
    try:
        return parse_json(content)
    except ValueError as error:
        raise ValueError(f"{path} {error}; {remedy}.") from error


def parse_json(content: bytes) -> Any:
    """A JSON value, in none of whose objects a key stands twice.

    Raises:
        ValueError: says what is wrong, as the rest of a sentence.
    """
    try:
        return json.loads(content, object_pairs_hook=object_of_unique_keys)
    except RecursionError:
        problem = "it nests too deep"
    except ValueError as error:
        problem = str(error)
    raise ValueError(f"is not JSON that can be read: {problem}")


def read_json_object(path: epath.Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a file of ours. Arguments and errors as `read_json`."""
    values = read_json(path, remedy)
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds {values!r:.40}, and no JSON object; {remedy}.")
    return values


def object_of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object from its pairs, for `json.loads(..., object_pairs_hook=...)`.

    Raises:
        ValueError: a key stands twice.
    """
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"the key {twice!r:.80} stands twice in an object; keep one of them"
        )
    return values


@contextlib.contextmanager
def name_path_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Have an OSError of the block name `path`, which is being written, and a remedy.

    Raises:
        OSError: with the same number as the block's, a full disk's above all.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        remedy = "see to it, and give the same command again"
        # NumPy counts what it could not write, and gives no number.
        if error.errno in _FULL or error.errno is None:
            remedy = "free space there, and give the same command again"
        reason = error.strerror or f"{error}, as on a full disk"
        told = f"{os.fspath(path)} cannot be written: {reason}; {remedy}."
        raise OSError(error.errno or errno.ENOSPC, told) from error


def atomic_write(path: str | os.PathLike[str], *pieces: bytes | memoryview) -> None:
    """Write a local file in one piece or not at all, and have it on the disk.

    Raises:
        OSError: it cannot be written; says where, and the remedy.
    """
    name = os.fspath(path)
    # Another process may write the same file, as one that a killed parent left.
    temporary = f"{name}.{secrets.token_hex(4)}.tmp"
    try:
        with name_path_in_errors(name):
            with open(temporary, "xb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, name)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def require_writable(directory: str | os.PathLike[str]) -> None:
    """Refuse an output directory that cannot be made or written to; leaves no trace.

    Raises:
        ValueError: it, or one of its parents, is a file.
        OSError: nothing can be written there.
    """
    found = os.path.abspath(directory)
    while not os.path.lexists(found):
        found = os.path.dirname(found)
    if not os.path.isdir(found):
        raise ValueError(
            f"{os.fspath(directory)} cannot be the output directory: {found} is there "
            "and is not a directory; choose another name."
        )
    trial = os.path.join(found, f".{secrets.token_hex(8)}.tmp")
    try:
        os.mkdir(trial)
        os.rmdir(trial)
    except OSError as error:
        raise OSError(
            error.errno,
            f"{os.fspath(directory)} cannot be written: {found}: {error.strerror}; "
            "choose another output.",
        ) from error


@contextlib.contextmanager
def name_path_if_disk_full(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Have the error of a full disk name `directory`, where it names no path below it.

    Raises:
        OSError: with the same number as the block's.
    """
    name = os.fspath(directory)
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL or name in str(error):
            raise
        told = f"{name} cannot be written: {error.strerror}; free space there"
        raise OSError(
            error.errno, f"{told}, and give the same command again."
        ) from error


def write_json(values: Any, path: epath.Path) -> None:
    """Write `values` as readable JSON, in one piece or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with name_path_in_errors(path), temporary.open("w") as file:
            file.write(json.dumps(values, indent=2) + "\n")
            file.flush()
            if hasattr(file, "fileno"):  # an object store has none, and needs none
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
