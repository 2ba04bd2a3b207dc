"""Datasets: rows of one NumPy dtype in memory-mapped shards.

A dataset is a directory of `train-00000-of-00007.npy` … and `validation-….npy` shards,
the tokenizer's files, and a `manifest.json` written last. A row holds unmasked text:

    tokens [T]              ids, padded at the end
    first [K]               position of a pair's [CLS]
    second [K]              position at which its second segment starts
    end [K]                 one past its last [SEP]; 0: no pair
    next_sentence_label [K] 0: the second segment follows the first; 1: it is random
                            or swapped; -1: none

T is the sequence length, K the maximum number of pairs in a row. Segment ids and the
attention mask are computed from these fields on the device.
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Sequence

import numpy as np
from etils import epath
from jaxtyping import Int, Shaped

from bert_jax.config.checks import require
from bert_jax.data.dataset_manifest import SPLITS, check_manifest
from bert_jax.data.shards import (
    UnmappedShard,
    dtype_from_json,
    open_shards,
    shard_header,
)
from bert_jax.storage.atomic import is_address
from bert_jax.storage.files import JsonObject, atomic_write
from bert_jax.storage.manifest import DamagedError, read_manifest, verify_files
from bert_jax.storage.remote import dataset_files, local_copy, open_directory
from bert_jax.storage.verified_once import verify_once
from bert_jax.tokenization import Tokenizer


def write_rows(path: epath.Path, rows: Shaped[np.ndarray, " N"]) -> None:
    """Write rows to a local `.npy` file, atomically."""
    atomic_write(path, shard_header(rows.dtype, len(rows)), rows.tobytes())


class Rows:
    """The rows of one split in memory maps, numbered across its shards."""

    def __init__(
        self, dtype: np.dtype[np.void], shards: Sequence[np.ndarray | UnmappedShard]
    ) -> None:
        self.dtype = dtype
        self._bytes = np.dtype((np.void, dtype.itemsize))
        self._shards = [
            shard if isinstance(shard, UnmappedShard) else shard.view(self._bytes)
            for shard in shards
        ]
        self._ends = np.cumsum([len(shard) for shard in shards], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def gather(self, numbers: Int[np.ndarray, " B"]) -> Shaped[np.ndarray, " B"]:
        """Return the rows with these numbers, in this order, as a structured array.

        Raise IndexError if a number is not in [0, len(self)).
        """
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise IndexError(
                f"rows {numbers.min()} to {numbers.max()} are not all among the "
                f"{len(self)} rows."
            )
        shard_numbers = np.searchsorted(self._ends, numbers, side="right")
        from_end = (numbers - self._ends[shard_numbers]).tolist()
        rows = np.empty(len(numbers), self._bytes)
        # Copy row by row: grouping by shard is slower, much slower with many shards.
        for i, shard_number in enumerate(shard_numbers.tolist()):
            rows[i] = self._shards[shard_number][from_end[i]]
        return rows.view(self.dtype)


def columns(rows: Shaped[np.ndarray, " B"]) -> dict[str, np.ndarray]:
    """Return the fields of a structured array as contiguous arrays, to make a batch."""
    names = rows.dtype.names
    assert names is not None
    return {name: np.ascontiguousarray(rows[name]) for name in names}


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A prepared dataset, open for reading."""

    path: epath.Path
    manifest: JsonObject
    train: Rows
    validation: Rows

    @property
    def sequence_length(self) -> int:
        """The number of tokens in a row."""
        return int(self.manifest["sequence_length"])

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the rows; raises DamagedError if another is in its place."""
        verify_files(self.path, self.manifest["tokenizer"]["files"])
        tokenizer = Tokenizer.load(self.path / "tokenizer")
        if tokenizer.fingerprint != self.manifest["tokenizer"]["fingerprint"]:
            raise DamagedError(
                f"{self.path / 'tokenizer'} is not the tokenizer that the manifest "
                f"names; restore {self.path} from a copy, or prepare it again."
            )
        return tokenizer

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of the content: independent of its path and of who prepared it."""
        content = {
            "row": self.manifest["row"],
            "tokenizer": self.manifest["tokenizer"]["fingerprint"],
            "shards": [[s["path"], s["sha256"]] for s in self.manifest["shards"]],
        }
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _require_no_model(root: epath.Path) -> None:
    require(
        not (root / "config.json").exists(),
        f"{root} is a model or the workdir of a run; name a dataset of `bert-jax "
        "prepare`.",
    )


def open_dataset(
    path: str | os.PathLike[str], verify: bool = False, once: bool = False
) -> Dataset:
    """Open the dataset that `bert-jax prepare` wrote to directory `path`.

    A dataset in a bucket is first copied to this machine, once, because rows are read
    through memory maps. Every shard must exist and have its full size.

    With `verify`, checksums are compared; with `once`, too, not those of files that
    have not changed since they last matched.

    Raise FileNotFoundError if there is no manifest: the dataset is absent or
    unfinished; DamagedError if a file is missing or differs from the manifest; or
    ValueError if it has another format version, or is a model or a file.
    """
    root = open_directory(path)
    try:
        root = local_copy(root) if is_address(root) else root
        manifest = read_manifest(root)
    except FileNotFoundError as error:
        _require_no_model(root)
        made = "a dataset is a directory that `bert-jax prepare` makes of text."
        require(not root.is_file(), f"{root} is a file; {made}")
        raise FileNotFoundError(f"{error} Make it with `bert-jax prepare`.") from error
    if "shards" not in manifest:
        _require_no_model(root)
    check_manifest(root, manifest)
    if verify:
        compare = verify_once if once else verify_files
        compare(root, dataset_files(root, manifest))
    entries, dtype = manifest["shards"], dtype_from_json(manifest["row"])
    shards = list(zip(entries, open_shards(root, entries, dtype), strict=True))
    train, validation = (
        Rows(dtype, [shard for entry, shard in shards if entry["split"] == split])
        for split in SPLITS
    )
    dataset = Dataset(root, manifest, train, validation)
    if verify:
        _ = dataset.tokenizer  # raises if it is not the one that made the rows
    return dataset
