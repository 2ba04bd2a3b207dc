"""Verify a dataset once for all processes of a host, and not at every restart.

A record in the cache directory lists the size, times and inode of every file at its
verification. While these are unchanged, the file counts as verified; otherwise it is
hashed again. A disk error changes none of them, so `inspect --verify` always hashes.
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

from bert_jax.storage.caches import cache_directory
from bert_jax.storage.files import JsonObject, atomic_write
from bert_jax.storage.manifest import verify_files

SETTLED_SECONDS = 2.0
"""A file that changed more recently may change again without a new time."""


def verify_once(root: epath.Path, entries: list[JsonObject]) -> None:
    """Compare the files of a local directory with their entries, unless recorded.

    The entries are of a checked manifest. Concurrent processes wait for the one that
    hashes. Raise DamagedError if a file is missing or altered.
    """
    with _locked_record(root) as record:
        before = _file_states(root, entries)
        with contextlib.suppress(OSError, ValueError, RecursionError):
            if before and json.loads(record.read_text()) == before:
                return
        verify_files(root, entries)
        newest = max((max(state[3], state[4]) for state in before), default=0)
        settled = time.time() - newest / 1e9 > SETTLED_SECONDS
        if settled and before == _file_states(root, entries):
            _write(record, before)


def record_verified(root: epath.Path, entries: list[JsonObject]) -> None:
    """Record files as verified now; no other process may be writing them."""
    with _locked_record(root) as record:
        _write(record, _file_states(root, entries))


@contextlib.contextmanager
def _locked_record(root: epath.Path) -> Iterator[Path]:
    """Yield the path of a directory's record, locked if the file system has locks."""
    name = hashlib.sha256(os.path.realpath(root).encode(errors="replace")).hexdigest()
    record = cache_directory(os.environ) / "verified" / name[:32]
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl  # Windows has none

            record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = stack.enter_context(open(f"{record}.lock", "w"))
            fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        yield record


def _file_states(root: epath.Path, entries: list[JsonObject]) -> list[list[Any]]:
    """Return path, sha256, size, times, inode of each file; [] if one is missing."""
    try:
        stats = [os.stat(root / entry["path"]) for entry in entries]
    except OSError:
        return []
    return [
        [e["path"], e["sha256"], s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino]
        for e, s in zip(entries, stats, strict=True)
    ]


def _write(record: Path, states: list[list[Any]]) -> None:
    with contextlib.suppress(OSError):  # without a record the files are hashed again
        atomic_write(record, json.dumps(states).encode())
