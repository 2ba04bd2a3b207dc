"""Manifests: the size and sha256 of every file of a dataset or checkpoint.

A directory is whole when its `manifest.json`, written last by rename, is there and
agrees with the files. The manifest holds a checksum of its own content too, so that an
altered byte in it is found as well.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from etils import epath

from bert_jax.storage.files import is_regular_file, write_json

MANIFEST = "manifest.json"
CHECKSUM = "checksum"
"""The key of a manifest's own checksum; manifests of version 0.1.0 have none."""
_KEYS_OF_0_1_0 = frozenset(
    # of a checkpoint, and of a dataset
    "step merit files "
    "format_version row sequence_length vocab_size pairs options passes tokenizer "
    "sources counts dropped shards".split()
)
_HEXADECIMAL = frozenset("0123456789abcdef")


class DamagedError(ValueError):
    """A file is missing, or is not what its manifest says."""


def sha256_of(path: epath.Path) -> str:
    """Hexadecimal sha256 of a file's bytes, read in pieces of 4 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


def files_below(directory: epath.Path) -> list[str]:
    """The paths of all files in a directory, relative to it."""
    return [
        str((folder / name).relative_to(directory))
        for folder, _, files in directory.walk()
        for name in files
    ]


def describe_files(root: epath.Path, names: Iterable[str]) -> list[dict[str, Any]]:
    """One entry a file: path relative to `root`, size in bytes, sha256."""

    def describe(name: str) -> dict[str, Any]:
        path = root / name
        return {"path": name, "size": path.stat().length, "sha256": sha256_of(path)}

    with ThreadPoolExecutor() as threads:
        return list(threads.map(describe, sorted(names)))


def is_confined(name: str) -> bool:
    """Whether `name` is a relative path that stays below the directory it is in."""
    return bool(name) and not os.path.isabs(name) and ".." not in name.split("/")


def check_entries(root: epath.Path, entries: Any) -> list[dict[str, Any]]:
    """The entries of a manifest, each with a path below `root`, a size and a sha256.

    Raises:
        DamagedError: one of them is no such entry, or names a file outside of `root`.
    """
    where = root / MANIFEST
    if not isinstance(entries, list):
        raise DamagedError(f"{where} lists no files.")
    for entry in entries:
        good = (
            isinstance(entry, dict)
            and isinstance(entry.get("path"), str)
            and type(entry.get("size")) is int
            and isinstance(entry.get("sha256"), str)
            and len(entry["sha256"]) == 64
            and _HEXADECIMAL.issuperset(entry["sha256"])
        )
        if not good:
            raise DamagedError(
                f"{where} has an entry without path, size and sha256: {entry!r:.80}."
            )
        if not is_confined(entry["path"]):
            raise DamagedError(f"{where} names {entry['path']!r}, outside of {root}.")
    return entries


def verify_files(root: epath.Path, entries: Iterable[dict[str, Any]]) -> None:
    """Compare every file with its entry.

    Raises:
        DamagedError: an entry is malformed, or a file is missing, lies outside of
            `root` behind a symbolic link, has another size or another sha256.
    """
    entries = check_entries(root, list(entries))

    def problem(entry: dict[str, Any]) -> str | None:
        path = root / entry["path"]
        if not path.exists():
            return f"{path} is missing"
        if leaves(root, path):
            return f"{path} is a link to outside of {root}"
        if not is_regular_file(path):
            return f"{path} is not a regular file"
        if (size := path.stat().length) != entry["size"]:
            return f"{path} has {size} bytes instead of {entry['size']}"
        if sha256_of(path) != entry["sha256"]:
            return f"{path} has another sha256 than its manifest says"
        return None

    with ThreadPoolExecutor() as threads:
        problems = [p for p in threads.map(problem, entries) if p]
    if problems:
        raise DamagedError(
            "; ".join(problems) + f". Restore {root} from a copy, or make it again."
        )


def leaves(root: epath.Path, path: epath.Path) -> bool:
    """Whether a local `path` below `root` is, by a symbolic link, really elsewhere."""
    if "://" in os.fspath(path):
        return False
    inside = os.path.realpath(root)
    return os.path.commonpath([inside, os.path.realpath(path)]) != inside


def content_checksum(content: dict[str, Any]) -> str:
    """Hexadecimal sha256 of JSON values, independent of the order of keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_manifest(content: dict[str, Any], root: epath.Path) -> None:
    """Write `content` and its checksum as the manifest of `root`, by rename."""
    content = json.loads(json.dumps(content))  # as it will be read: lists, no tuples
    write_json(content | {CHECKSUM: content_checksum(content)}, root / MANIFEST)


def read_manifest(root: epath.Path) -> dict[str, Any]:
    """The content of the manifest of directory `root`, without its checksum.

    Raises:
        FileNotFoundError: there is none, so the directory was never finished.
        DamagedError: it is not a JSON object, or not what its checksum says.
    """
    path = root / MANIFEST
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: {root} is absent or unfinished.")
    if not is_regular_file(path):
        raise DamagedError(f"{path} is not a regular file.")
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise DamagedError(f"{path} is not a JSON object.")
    if CHECKSUM not in content:
        if unknown := content.keys() - _KEYS_OF_0_1_0:
            raise DamagedError(
                f"{path} has no {CHECKSUM}, but {min(unknown)!r:.80}; it was altered."
            )
        return content
    checksum = content.pop(CHECKSUM)
    if checksum != content_checksum(content):
        raise DamagedError(f"{path} is not what its own checksum says; it was altered.")
    return content
