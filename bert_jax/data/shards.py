"""Shards: NumPy .npy files of rows, of about 1 GB, read in random order.

Rows are copied from memory maps. A memory map keeps its file open, and the number of
open files is limited. Shards beyond the limit are opened again for each row, as may
happen with datasets of version 0.1.0, which have a shard for each 4 MiB of text.
"""

import contextlib
import io
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Shaped

from bert_jax.storage.files import JsonObject
from bert_jax.storage.manifest import DamagedError, escapes, file_problem
from bert_jax.terminal.messages import warn

_RESERVED = 256
"""Open files reserved for the rest of the process."""
_MAX_MAPS = 1 << 14
"""Linux allows a process 65,530 memory maps of all kinds."""


def row_dtype(
    sequence_length: int, vocab_size: int, pairs_per_row: int = 1
) -> np.dtype[np.void]:
    """Return the packed little-endian dtype of a row."""
    tokens = "<u2" if vocab_size <= 1 << 16 else "<u4"
    return np.dtype(
        [
            ("tokens", tokens, (sequence_length,)),
            ("first", "<u2", (pairs_per_row,)),
            ("second", "<u2", (pairs_per_row,)),
            ("end", "<u2", (pairs_per_row,)),
            ("next_sentence_label", "i1", (pairs_per_row,)),
        ]
    )


def dtype_to_json(dtype: np.dtype[np.void]) -> list[list[Any]]:
    """Return the dtype as JSON values: [name, type, shape] of each field."""
    return [
        [field[0], field[1], list(field[2]) if len(field) > 2 else []]
        for field in dtype.descr
    ]


def dtype_from_json(fields: list[list[Any]]) -> np.dtype[np.void]:
    """Return the dtype of these fields; raise ValueError if it is no row's."""
    try:
        (length,), (pairs,) = fields[0][2], fields[1][2]
        vocab_size = {"<u2": 1, "<u4": 1 << 17}[fields[0][1]]
        if type(length) is type(pairs) is int and 1 <= pairs <= length <= 65_535:
            dtype = row_dtype(length, vocab_size, pairs)
            if dtype_to_json(dtype) == fields:
                return dtype
    except (ValueError, TypeError, LookupError):
        pass
    raise ValueError(f"{fields!r:.160} is not the dtype of a row")


def shard_name(split: str, number: int, num_shards: int) -> str:
    return f"{split}-{number:05d}-of-{num_shards:05d}.npy"


def shard_header(dtype: np.dtype[np.void], rows: int) -> bytes:
    """Return the .npy header of a shard; its length does not depend on `rows`."""
    header = io.BytesIO()
    values = {"descr": dtype.descr, "fortran_order": False, "shape": (rows,)}
    np.lib.format.write_array_header_1_0(header, values)
    return header.getvalue()


class UnmappedShard:
    """The rows of a shard whose file is open only while a row is read."""

    def __init__(self, path: epath.Path, offset: int, rows: int, size: int) -> None:
        self._path, self._offset, self._rows = os.fspath(path), offset, rows
        self._dtype = np.dtype((np.void, size))

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, number: int) -> np.void:
        """Return the bytes of a row; -1 is the last row."""
        offset = self._offset + number % self._rows * self._dtype.itemsize
        rows = np.fromfile(self._path, self._dtype, 1, offset=offset)
        if not len(rows):
            raise DamagedError(f"{self._path} became shorter while it was read.")
        return rows[0]


def open_shards(
    root: epath.Path, entries: Sequence[JsonObject], dtype: np.dtype[np.void]
) -> list[Shaped[np.ndarray, " N"] | UnmappedShard]:
    """Open the shards of a manifest's entries, as memory maps as far as possible.

    Raise DamagedError if a shard is missing, is a link to outside of `root`, or does
    not hold the rows that the manifest names.
    """
    max_maps = _max_open_files(len(entries))
    if max_maps < len(entries):
        warn(
            f"{root}: {len(entries) - max_maps} of {len(entries)} shards are opened "
            "again for each row, because this process cannot keep enough files open; "
            "to read them faster, raise `ulimit -n`, or prepare the dataset again: it "
            "will have few shards."
        )
    shards: list[np.ndarray | UnmappedShard] = []
    for number, entry in enumerate(entries):
        path, rows = root / entry["path"], entry["rows"]
        if problem := file_problem(root, entry):
            is_elsewhere = path.exists() and escapes(root, path)
            remedy = "copy the file" if is_elsewhere else "prepare the dataset again"
            raise DamagedError(f"{problem}; {remedy}.")
        offset = _read_header(path, dtype, rows)
        if offset + rows * dtype.itemsize != entry["size"]:
            problem = f"has {entry['size']} bytes, which do not fit its {rows} rows"
            raise _damaged(path, problem)
        if not rows:
            shards.append(np.empty(0, dtype))
        elif number < max_maps:
            # A plain view: np.memmap's own indexing is several times slower.
            mapped = np.memmap(path, dtype, "r", offset, (rows,))
            shards.append(mapped.view(np.ndarray))
        else:
            shards.append(UnmappedShard(path, offset, rows, dtype.itemsize))
    return shards


def _damaged(path: epath.Path, problem: str) -> DamagedError:
    return DamagedError(f"{path} {problem}; prepare the dataset again.")


def _read_header(path: epath.Path, dtype: np.dtype[np.void], rows: int) -> int:
    """Check a shard's header; return the offset of its rows."""
    with path.open("rb") as file:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                version = np.lib.format.read_magic(file)
                if version != (1, 0):
                    raise ValueError(f"its .npy version is {version}, not (1, 0)")
                header = np.lib.format.read_array_header_1_0(file)
        except Exception as error:
            # NumPy's parser raises many kinds of errors: TokenError, SyntaxError, …
            reason = " ".join(str(error).split())[:160].rstrip(".")
            raise _damaged(path, f"is not a shard: {reason}") from error
        if header != ((rows,), False, dtype):
            raise _damaged(path, "holds other rows than its manifest says")
        return file.tell()


def _max_open_files(wanted: int) -> int:
    """Return how many of the wanted files can be open; raise the limit if needed."""
    wanted = min(wanted, _MAX_MAPS)
    try:
        import resource  # Windows has none
    except ImportError:
        return wanted
    used = _RESERVED
    with contextlib.suppress(OSError):
        used += len(os.listdir("/dev/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < used + wanted:
        limited = hard != resource.RLIM_INFINITY
        more = min(used + wanted, hard) if limited else used + wanted
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
    return max(0, min(wanted, soft - used))
