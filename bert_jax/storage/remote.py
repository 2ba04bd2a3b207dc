"""Open paths in a bucket (`gs://…`), and copy datasets from there."""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor

from etils import epath

from bert_jax.storage.atomic import atomic_directory, is_address
from bert_jax.storage.caches import cache_directory
from bert_jax.storage.files import JsonObject, require_no_tilde
from bert_jax.storage.manifest import (
    MANIFEST,
    DamagedError,
    check_entries,
    read_manifest,
    verify_files,
)
from bert_jax.storage.quiet_tensorflow import quieten_tensorflow
from bert_jax.storage.verified_once import record_verified
from bert_jax.terminal.messages import say


def open_directory(path: str | os.PathLike[str]) -> epath.Path:
    """Return the path; raise ValueError if it begins with ~ or cannot be reached."""
    require_no_tilde(path)
    try:
        directory = epath.Path(path)
    except KeyError as error:
        raise ValueError(
            f"{os.fspath(path)} is an address of a kind that is not supported; use "
            "gs://… or a local directory."
        ) from error
    if not is_address(directory):
        return directory
    quieten_tensorflow(os.environ)
    try:
        directory.exists()
    except Exception as error:  # each library for buckets has errors of its own
        reason = " ".join(str(error).split())[:240].rstrip(".")
        raise ValueError(
            f"{os.fspath(path)} cannot be reached: {reason}. Check its name, your "
            "credentials (gs:// also takes `pip install 'bert_jax[gcs]'`) and the "
            "network, or name a local directory."
        ) from error
    return directory


def dataset_files(root: epath.Path, manifest: JsonObject) -> list[JsonObject]:
    """Return a manifest's entries; raise DamagedError if it is not of a dataset."""
    try:
        return [*manifest["shards"], *manifest["tokenizer"]["files"]]
    except (KeyError, TypeError) as error:
        raise DamagedError(
            f"{root / MANIFEST} is not a dataset's manifest: {error!r}."
        ) from error


def local_copy(address: epath.Path) -> epath.Path:
    """Return a local directory with the dataset; it is copied at most once.

    The directory is in the cache, named by the content, and is verified before it gets
    that name. Concurrent processes wait for the one that copies. Raise
    FileNotFoundError if the address has no manifest, or DamagedError if the copied
    files are not what it says.
    """
    import fcntl  # Windows has none

    manifest = read_manifest(address)
    content = json.dumps(manifest, sort_keys=True).encode()
    parent = epath.Path(cache_directory(os.environ)) / "datasets"
    parent.mkdir(parents=True, exist_ok=True)
    target = parent / hashlib.sha256(content).hexdigest()[:16]
    with open(f"{target}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if target.exists():
            return target
        files = check_entries(address, dataset_files(address, manifest))
        size = sum(entry["size"] for entry in files)
        say(f"Copying {address}, {size / 2**20:,.1f} MiB, to {target}.")
        with atomic_directory(target) as unfinished:

            def copy(name: str) -> None:
                (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
                (address / name).copy(unfinished / name)

            names = [*(entry["path"] for entry in files), MANIFEST]
            with ThreadPoolExecutor() as threads:
                list(threads.map(copy, names))  # raises the first error
            verify_files(unfinished, files)
        record_verified(target, files)
    return target
