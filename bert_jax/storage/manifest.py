"""Manifests: the size and sha256 of every file of a dataset or checkpoint.

A directory is complete when its `manifest.json`, which is written last and atomically,
exists and agrees with the files. The manifest also has a checksum of its own content,
which detects an altered byte in it.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from etils import epath

from bert_jax.storage.files import (
    JsonObject,
    file_size,
    finite_json,
    is_regular_file,
    write_json,
)

MANIFEST = "manifest.json"
CHECKSUM = "checksum"
"""The key of a manifest's own checksum; manifests of version 0.1.0 have none."""
SCORE_KEY_OF_0_1_0 = "merit"
_KEYS_OF_0_1_0 = frozenset(
    # of a checkpoint, and of a dataset
    f"step {SCORE_KEY_OF_0_1_0} files "
    "format_version row sequence_length vocab_size pairs options passes tokenizer "
    "sources counts dropped shards".split()
)


class DamagedError(ValueError):
    """A file is missing, or is not what its manifest says."""


def sha256_of(path: epath.Path) -> str:
    """Return the hexadecimal sha256 of a file, read in pieces of 4 MiB."""
    digest = hashlib.sha256()
    # hashlib.file_digest needs `readinto`, which files in a bucket lack.
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


def files_below(directory: epath.Path) -> list[str]:
    """Return the paths of all files in a directory, relative to it."""
    return [
        str((folder / name).relative_to(directory))
        for folder, _, files in directory.walk()
        for name in files
    ]


def describe_files(
    root: epath.Path, names: Iterable[str] | None = None
) -> list[JsonObject]:
    """Return the path relative to `root`, size and sha256 of files; None: of all."""
    names = files_below(root) if names is None else names

    def describe(name: str) -> JsonObject:
        path = root / name
        return {"path": name, "size": file_size(path), "sha256": sha256_of(path)}

    with ThreadPoolExecutor() as threads:
        return list(threads.map(describe, sorted(names)))


def is_confined(name: str) -> bool:
    """Whether `name` is a relative path without `..`."""
    return bool(name) and not os.path.isabs(name) and ".." not in name.split("/")


def check_entries(root: epath.Path, entries: object) -> list[JsonObject]:
    """Return the entries of a manifest if each has a path, a size and a sha256.

    Raise DamagedError if one is malformed, or names a file outside of `root`.
    """
    manifest = root / MANIFEST
    if not isinstance(entries, list):
        raise DamagedError(f"{manifest} lists no files.")
    for entry in entries:
        valid = False
        match entry:
            case {"path": str(), "size": size, "sha256": str(sha256)}:
                is_sha256 = re.fullmatch("[0-9a-f]{64}", sha256) is not None
                valid = type(size) is int and is_sha256
        if not valid:
            raise DamagedError(
                f"{manifest} has an entry without path, size and sha256: {entry!r:.80}."
            )
        if not is_confined(entry["path"]):
            raise DamagedError(
                f"{manifest} names {entry['path']!r}, outside of {root}."
            )
    return entries


def verify_files(root: epath.Path, entries: Iterable[JsonObject]) -> None:
    """Compare every file with its entry.

    Raise DamagedError if an entry is malformed, or a file is missing, is outside of
    `root` behind a symbolic link, or has another size or another sha256.
    """
    entries = check_entries(root, list(entries))

    def find_problem(entry: JsonObject) -> str:
        if problem := file_problem(root, entry):
            return problem
        path = root / entry["path"]
        is_same = sha256_of(path) == entry["sha256"]
        return "" if is_same else f"{path} has another sha256 than its manifest says"

    with ThreadPoolExecutor() as threads:
        problems = list(filter(None, threads.map(find_problem, entries)))
    if problems:
        raise DamagedError(
            "; ".join(problems) + f". Restore {root} from a copy, or make it again."
        )


def file_problem(root: epath.Path, entry: JsonObject) -> str:
    """Return why a file cannot be that of its entry, without reading it, or ""."""
    path, size = root / entry["path"], entry["size"]
    if not path.exists():
        return f"{path} is missing"
    if escapes(root, path):
        return f"{path} is a link to outside of {root}"
    if not is_regular_file(path):
        return f"{path} is not a regular file"
    length = file_size(path)
    return "" if length == size else f"{path} has {length} bytes instead of {size}"


def escapes(root: epath.Path, path: epath.Path) -> bool:
    """Whether a local `path` below `root` is outside of it behind a symbolic link."""
    if "://" in os.fspath(path):
        return False
    inside = os.path.realpath(root)
    return os.path.commonpath([inside, os.path.realpath(path)]) != inside


def content_checksum(content: JsonObject) -> str:
    """Return the hexadecimal sha256 of JSON values; the order of keys is ignored."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_manifest(content: JsonObject, root: epath.Path) -> None:
    """Write `content` and its checksum as the manifest of `root`, atomically."""
    content = json.loads(json.dumps(finite_json(content)))  # as it is read
    write_json(content | {CHECKSUM: content_checksum(content)}, root / MANIFEST)


def read_manifest(root: epath.Path) -> JsonObject:
    """Return the manifest of directory `root` without its checksum.

    Raise FileNotFoundError if there is none: the directory was never completed; or
    DamagedError if it is not a JSON object, or differs from its checksum.
    """
    path = root / MANIFEST
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: {root} is absent or unfinished.")
    if not is_regular_file(path):
        raise DamagedError(f"{path} is not a regular file.")
    try:
        content = json.loads(path.read_bytes())
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
        raise DamagedError(f"{path} differs from its own checksum; it was altered.")
    return content
