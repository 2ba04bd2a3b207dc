"""Verifying a dataset once for all processes of a host, and not at every restart.

What was verified is noted in the user's caches, with the size, times and inode of every
file. While these stay, the bytes count as verified: an altered file is hashed again. A
disk that alters bytes by itself changes none of them; `inspect --verify` always hashes.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etils import epath

from bert_jax.storage.caches import caches
from bert_jax.storage.manifest import check_entries, verify_files

SETTLED_SECONDS = 2.0
"""A file that was changed later than so long ago may change again at the same time."""


def verify_once(root: epath.Path, entries: list[dict[str, Any]]) -> None:
    """Compare every file of a local directory with its entry, unless that is noted.

    Processes that ask at once wait for the one that hashes.

    Raises:
        DamagedError: as `verify_files`.
    """
    check_entries(root, entries)
    with _note(root) as note:
        if note is not None and _read(note) == _state(root, entries):
            return
        before = _state(root, entries)
        verify_files(root, entries)
        newest = max((max(state[3], state[4]) for state in before), default=0)
        settled = time.time() - newest / 1e9 > SETTLED_SECONDS
        if note is not None and settled and before == _state(root, entries):
            _write(note, before)


def note_verified(root: epath.Path, entries: list[dict[str, Any]]) -> None:
    """Note that files of ours, which nobody else writes, were verified just now."""
    with _note(root) as note:
        if note is not None:
            _write(note, _state(root, entries))


@contextlib.contextmanager
def _note(root: epath.Path) -> Iterator[Path | None]:
    """Where the note of a directory is, locked; None where none can be kept."""
    name = hashlib.sha256(os.path.realpath(root).encode(errors="replace")).hexdigest()
    place = caches(os.environ) / "verified" / name[:32]
    try:
        import fcntl  # Windows has none

        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = open(f"{place}.lock", "w")
    except (ImportError, OSError):
        yield None
        return
    with lock:
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        yield place


def _state(root: epath.Path, entries: list[dict[str, Any]]) -> list[list[Any]]:
    """Of each file its entry, size, times in nanoseconds and inode."""
    found: list[list[Any]] = []
    for entry in entries:
        with contextlib.suppress(OSError):
            stat = os.stat(root / entry["path"])
            times = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
            found.append([entry["path"], entry["sha256"], *times])
    return found if len(found) == len(entries) else []


def _read(note: Path) -> list[list[Any]] | None:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        state = json.loads(note.read_text())
        return state if isinstance(state, list) and state else None
    return None


def _write(note: Path, state: list[list[Any]]) -> None:
    with contextlib.suppress(OSError):  # what cannot be noted is hashed again
        temporary = note.with_name(f"{note.name}.{os.getpid()}")
        temporary.write_text(json.dumps(state))
        temporary.replace(note)
