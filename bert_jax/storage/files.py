"""Read regular files and JSON, write files atomically, and name paths in errors."""

import contextlib
import errno
import json
import math
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from etils import epath

JsonObject = dict[str, Any]
"""A JSON object: its values by their keys."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_regular_file(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a regular file or a link to one; True for a bucket's paths.

    epath's `is_file` is also true for a pipe.
    """
    return "://" in os.fspath(path) or os.path.isfile(path)


def require_regular_file(path: str | os.PathLike[str], what: str = "") -> None:
    """Refuse a FIFO, a device or a socket, since reading it may never end.

    Raise ValueError for those, and FileNotFoundError if there is no such file; the
    message tells `what` option or file named it. A path in a bucket is accepted.
    """
    name = os.fspath(path)
    if "://" in name:
        return
    subject = f"{what} {name}".lstrip()
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError as error:
        if os.path.islink(name):
            subject += f" is a link to {os.readlink(name)}, which"
        raise FileNotFoundError(f"{subject} is missing.") from error
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe, device or socket"
        raise ValueError(f"{subject} is not a regular file but {kind}; name a file.")


def file_size(path: str | os.PathLike[str]) -> int:
    """Return the bytes of a file; `stat` of epath fails if its owner has no name."""
    name = os.fspath(path)
    return epath.Path(name).stat().length if "://" in name else os.stat(name).st_size


def read_json(path: epath.Path, remedy: str) -> Any:
    """Return the JSON value in a file.

    Raise FileNotFoundError if there is none, or ValueError, with the `remedy`, if it is
    not a regular file, not JSON, or has a key twice.
    """
    require_regular_file(path)
    content = path.read_bytes()
    try:
        return json.loads(content, object_pairs_hook=object_of_unique_keys)
    except RecursionError:
        problem = "it is nested too deep"
    except ValueError as error:
        problem = str(error)
    raise ValueError(f"{path} is not JSON that can be read: {problem}; {remedy}.")


def read_json_object(path: epath.Path, remedy: str) -> JsonObject:
    """Return the JSON object in a file; arguments and errors as for `read_json`."""
    values = read_json(path, remedy)
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds {values!r:.40}, not a JSON object; {remedy}.")
    return values


def object_of_unique_keys(pairs: list[tuple[str, object]]) -> JsonObject:
    """An `object_pairs_hook` of `json.loads`; raise ValueError if a key is twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"the key {twice!r:.80} occurs twice in an object; keep one of them"
        )
    return values


@contextlib.contextmanager
def located(where: object) -> Iterator[None]:
    """Begin the text of the block's ValueError with the file, or the place in it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


@contextlib.contextmanager
def name_path_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add `path`, which the block writes, and a remedy to the text of its OSError."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        remedy = "correct that, and give the same command again"
        # NumPy's error says how much it could not write, and has no number.
        if error.errno in _DISK_FULL or error.errno is None:
            remedy = "free space there, and give the same command again"
        reason = error.strerror or f"{error}, as on a full disk"
        message = f"{os.fspath(path)} cannot be written: {reason}; {remedy}."
        raise OSError(error.errno or errno.ENOSPC, message) from error


@contextlib.contextmanager
def name_path_if_disk_full(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Add `directory` to the error of a full disk, unless that names a path in it."""
    name = os.fspath(directory)
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_FULL or name in str(error):
            raise
        # A new error, since this one may name a file outside of the directory.
        with name_path_in_errors(name):
            raise OSError(error.errno, error.strerror) from error


@contextlib.contextmanager
def temporary_beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield where a temporary file of a local `path` may be; it is removed at the end.

    Its name is random, since another process may write the same file at once.
    """
    temporary = Path(f"{os.fspath(path)}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a local file to write; it becomes the file `path` if the block succeeds.

    Before, its content is flushed to the disk: a crash of the machine leaves the old
    file or the new one. A bucket's own files could not seek while they are written: the
    file is copied there, and an object is stored when it is complete.

    Raise OSError, which names `path` and a remedy, if it cannot be renamed or the disk
    is full. Other errors of the block pass unchanged.
    """
    if "://" in os.fspath(path):
        with tempfile.TemporaryDirectory() as folder:
            yield (local := Path(folder) / "file")
            with name_path_in_errors(path):
                epath.Path(local).copy(path, overwrite=True)
        return
    with temporary_beside(path) as temporary:
        with name_path_if_disk_full(path):
            yield temporary
        with name_path_in_errors(path):
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)


def atomic_write(path: str | os.PathLike[str], *pieces: bytes | memoryview) -> None:
    """Write a file completely, or raise OSError with its path and a remedy."""
    with (
        atomic_file(path) as temporary,
        name_path_in_errors(path),
        temporary.open("xb") as file,
    ):
        file.writelines(pieces)


def write_lines(lines: Iterable[str], path: Path) -> None:
    """Write lines, each with a line feed at its end, completely or not at all."""
    atomic_write(path, "".join(f"{line}\n" for line in lines).encode())


def remove_temporaries(directory: str | os.PathLike[str], name: str = "") -> None:
    """Remove what killed processes left of `atomic_file` in a local directory.

    Call this only where no other process writes there. With `name`, only the
    temporaries of that file are removed.
    """
    pattern = (re.escape(name) if name else ".+") + r"\.[0-9a-f]{8}\.tmp"
    for entry in Path(directory).iterdir():
        if re.fullmatch(pattern, entry.name, re.DOTALL):
            entry.unlink(missing_ok=True)


def finite_json(values: Any) -> Any:
    """Return JSON values with None for each number that is not finite."""
    if isinstance(values, dict):
        return {key: finite_json(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [finite_json(value) for value in values]
    is_number = isinstance(values, float) and not math.isfinite(values)
    return None if is_number else values


def write_json(values: object, path: epath.Path) -> None:
    """Write `values` as indented JSON, with null for numbers that are not finite.

    The file is written completely or not at all.
    """
    content = json.dumps(finite_json(values), indent=2, allow_nan=False) + "\n"
    atomic_write(path, content.encode())


def require_new_file(
    path: str | os.PathLike[str], overwrite: bool, source: str = ""
) -> None:
    """Raise ValueError if an output file is the `source`, or may not be replaced."""
    if os.path.exists(path) and os.path.exists(source):
        if os.path.samefile(path, source):
            raise ValueError(
                f"output={os.fspath(path)} is the input; it would be lost. Choose "
                "another --output."
            )
    if os.path.isfile(path) and not overwrite:
        raise ValueError(
            f"output={os.fspath(path)} exists; pass --overwrite to replace it, or "
            "choose another --output."
        )


def require_no_tilde(path: str | os.PathLike[str]) -> None:
    """Raise ValueError if a path begins with ~: a directory of that name would be made.

    The command line has replaced it already.
    """
    name = os.fspath(path)
    if name == "~" or name.startswith("~/"):
        raise ValueError(
            f"{name} begins with ~, replaced only on the command line; write the path "
            f"in full: {os.path.expanduser(name)}"
        )


def require_writable(directory: str | os.PathLike[str]) -> None:
    """Raise ValueError or OSError if an output directory cannot be made or written to.

    Nothing is written.
    """
    require_no_tilde(directory)
    parent = os.path.abspath(directory)
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        raise ValueError(
            f"{os.fspath(directory)} cannot be the output directory: {parent} exists "
            "and is not a directory; choose another name."
        )
    try:
        tempfile.TemporaryDirectory(dir=parent).cleanup()
    except OSError as error:
        raise OSError(
            error.errno,
            f"{os.fspath(directory)} cannot be written: {parent}: {error.strerror}; "
            "choose another output.",
        ) from error


def require_output_file(path: Path, *suffixes: str) -> None:
    """Raise ValueError or OSError if a file cannot be written, before a computation."""
    # A `Path` has one slash of gs://, and a drive of Windows has one letter.
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", os.fspath(path)):
        raise ValueError(
            f"{path} is an address, and only a local file can be written; name one, "
            "and copy it to the bucket."
        )
    if path.suffix.lower() not in suffixes:
        raise ValueError(
            f"{path} must end in {' or '.join(suffixes)}, to define the format."
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} is not a directory; make it first.")
    if path.is_dir():
        raise ValueError(f"{path} is a directory; name a file to write.")
    require_writable(path.parent)
