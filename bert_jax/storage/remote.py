"""What lies in a bucket: `gs://…` as a workdir, a model, or a dataset to copy."""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from etils import epath

from bert_jax.storage.atomic import atomic_directory, is_address
from bert_jax.storage.caches import caches
from bert_jax.storage.manifest import (
    MANIFEST,
    DamagedError,
    check_entries,
    read_manifest,
    verify_files,
)
from bert_jax.storage.quiet_tensorflow import quieten_tensorflow
from bert_jax.storage.verified_once import note_verified
from bert_jax.terminal.messages import say


def open_directory(path: str | os.PathLike[str]) -> epath.Path:
    """The path itself; an address is first asked for.

    Raises:
        ValueError: an address of a kind that is not read, or that does not answer.
    """
    try:
        directory = epath.Path(path)
    except KeyError as error:
        raise ValueError(
            f"{os.fspath(path)} is an address of a kind that is not read; use gs://… "
            "or a local directory."
        ) from error
    if not is_address(directory):
        return directory
    quieten_tensorflow(os.environ)
    try:
        directory.exists()
    except Exception as error:
        # The libraries that fetch raise errors of many kinds.
        reason = " ".join(str(error).split())[:240].rstrip(".")
        raise ValueError(
            f"{os.fspath(path)} cannot be reached: {reason}. Look at its name, your "
            "credentials (gs:// also takes `pip install 'bert_jax[gcs]'`) and the "
            "network, or name a local directory."
        ) from error
    return directory


def dataset_files(root: epath.Path, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """What the manifest of the dataset in `root` says of each of its files.

    Raises:
        DamagedError: it is the manifest of something else.
    """
    try:
        return [*manifest["shards"], *manifest["tokenizer"]["files"]]
    except (KeyError, TypeError) as error:
        raise DamagedError(
            f"{root / MANIFEST} is not a dataset's manifest: {error!r}."
        ) from error


def local_copy(address: epath.Path) -> epath.Path:
    """Where a dataset lies on this machine's disk, after it was copied there once.

    It is one directory for one content, in the user's caches, and verified before it
    gets its name. Processes that ask at once wait for the one that copies.

    Raises:
        FileNotFoundError: the address has no manifest.
        DamagedError: what was copied is not what the manifest says.
    """
    import fcntl  # Windows has none

    manifest = read_manifest(address)
    content = json.dumps(manifest, sort_keys=True).encode()
    place = epath.Path(caches(os.environ)) / "datasets"
    place.mkdir(parents=True, exist_ok=True)
    target = place / hashlib.sha256(content).hexdigest()[:16]
    with open(f"{target}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if not target.exists():
            _copy(address, target, dataset_files(address, manifest))
    return target


def _copy(address: epath.Path, target: epath.Path, files: list[dict[str, Any]]) -> None:
    names = [entry["path"] for entry in check_entries(address, files)]
    size = sum(entry["size"] for entry in files)
    say(f"Copying {address}, {size / 2**20:,.1f} MiB, to {target}.")
    with atomic_directory(target) as unfinished:
        for name in names:
            (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor() as threads:
            copied = threads.map(
                lambda name: (address / name).copy(unfinished / name),
                [*names, MANIFEST],
            )
            list(copied)
        verify_files(unfinished, files)
    note_verified(target, files)
