"""Manifests: the size and sha256 of every file of a dataset or checkpoint.

A directory is whole when its `manifest.json`, written last by rename, is there and
agrees with the files.
"""

import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from etils import epath

MANIFEST = "manifest.json"


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


def verify_files(root: epath.Path, entries: Iterable[dict[str, Any]]) -> None:
    """Compare every file with its entry.

    Raises:
        DamagedError: a file is missing, has another size, or another sha256.
    """

    def problem(entry: dict[str, Any]) -> str | None:
        path = root / entry["path"]
        if not path.exists():
            return f"{path} is missing"
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


def read_manifest(root: epath.Path) -> dict[str, Any]:
    """The manifest of directory `root`.

    Raises:
        FileNotFoundError: there is none, so the directory was never finished.
        DamagedError: it is not JSON.
    """
    path = root / MANIFEST
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: {root} is absent or unfinished.")
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise DamagedError(f"{path} is not JSON: {error}.") from error
