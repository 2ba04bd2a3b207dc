"""Append the rows of finished chunks to their shards, in the order of the chunks.

A chunk's rows are first written to their own file, so chunks may finish in any order.
The file is deleted once the rows are in the shard and on disk. After an interruption,
the sha256 of the chunks determines how many of them the shard already holds.
"""

import collections
import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import BinaryIO

import numpy as np
from etils import epath

from bert_jax.data.chunks import Chunk, read_result, read_rows, rows_path
from bert_jax.data.shards import shard_header
from bert_jax.storage.files import JsonObject, is_regular_file, name_path_in_errors
from bert_jax.storage.manifest import describe_files

_PIECE_BYTES = 1 << 22


class GrowingShard:
    """A shard and the chunks that belong in it."""

    def __init__(
        self, output: epath.Path, chunks: Sequence[Chunk], dtype: np.dtype[np.void]
    ) -> None:
        """Find the chunks that earlier runs finished, and verify them."""
        self.name, self.split = chunks[0].shard, chunks[0].split
        self.results: dict[str, JsonObject] = {}
        """The result of each finished chunk, by its name."""
        self._output, self._dtype = output, dtype
        self._waiting = collections.deque(chunks)
        self._rows = 0
        if is_regular_file(self._path):
            with self._path.open("rb") as file:
                file.seek(len(shard_header(dtype, 0)))
                while self._waiting and self._holds_next(file):
                    pass
        for chunk in list(self._waiting):
            result = read_result(output, chunk)
            if result and read_rows(output, chunk, result, dtype.itemsize) is not None:
                self.results[chunk.name] = result

    @property
    def _path(self) -> epath.Path:
        return self._output / self.name

    @property
    def _end(self) -> int:
        """The file offset at which the shard's rows end."""
        header = len(shard_header(self._dtype, 0))
        return header + self._rows * self._dtype.itemsize

    def _holds_next(self, file: BinaryIO) -> bool:
        """Return whether the rows of the next chunk follow in the file; count them."""
        chunk = self._waiting[0]
        result = read_result(self._output, chunk)
        if result is None:
            return False
        remaining, digest = result["rows"] * self._dtype.itemsize, hashlib.sha256()
        while remaining and (piece := file.read(min(remaining, _PIECE_BYTES))):
            digest.update(piece)
            remaining -= len(piece)
        if remaining or digest.hexdigest() != result["sha256"]:
            return False
        self._count(chunk, result)
        return True

    def _count(self, chunk: Chunk, result: JsonObject) -> None:
        """Count the first waiting chunk as one of those in the shard."""
        assert self._waiting.popleft() is chunk
        self.results[chunk.name] = result
        self._rows += result["rows"]

    def total(self, name: str) -> int:
        """Return the total of a count, such as "tokens", over the finished chunks."""
        return sum(result["counts"][name] for result in self.results.values())

    def add(self, finished: Iterable[tuple[Chunk, JsonObject]] = ()) -> None:
        """Record finished chunks, and append rows while the next chunk is finished.

        Raises:
            RuntimeError: a chunk's rows were altered after they were written.
            OSError: the shard cannot be written.
        """
        self.results |= {chunk.name: result for chunk, result in finished}
        if not self._waiting or self._waiting[0].name not in self.results:
            return
        with name_path_in_errors(self._path):
            if not self._path.exists():
                self._path.write_bytes(shard_header(self._dtype, 0))
            with open(self._path, "r+b") as file:
                # Remove rows that an interrupted run appended only in part.
                file.truncate(self._end)
                file.seek(self._end)
                while self._waiting and self._waiting[0].name in self.results:
                    self._append(self._waiting[0], file)

    def _append(self, chunk: Chunk, file: BinaryIO) -> None:
        result = self.results[chunk.name]
        content = read_rows(self._output, chunk, result, self._dtype.itemsize)
        if content is None:
            raise RuntimeError(
                f"{rows_path(self._output, chunk)} is not what was written there; the "
                "same command makes it again. Check the disk if this happens often."
            )
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        self._count(chunk, result)
        rows_path(self._output, chunk).unlink()

    def finish(self) -> JsonObject:
        """Write the number of rows to the header; return the manifest entry."""
        assert not self._waiting
        header = shard_header(self._dtype, self._rows)
        with name_path_in_errors(self._path), open(self._path, "r+b") as file:
            if file.read(len(header)) != header:
                file.seek(0)
                file.write(header)
            file.truncate(self._end)
            file.flush()
            os.fsync(file.fileno())
        (entry,) = describe_files(self._output, [self.name])
        return entry | {"split": self.split, "rows": self._rows}


def growing_shards(
    output: epath.Path, chunks: Sequence[Chunk], dtype: np.dtype[np.void]
) -> dict[str, GrowingShard]:
    """Return the shards of all chunks, in order, with what earlier runs finished."""
    parts: dict[str, list[Chunk]] = collections.defaultdict(list)
    for chunk in chunks:
        parts[chunk.shard].append(chunk)
    shards = {name: GrowingShard(output, part, dtype) for name, part in parts.items()}
    for shard in shards.values():
        shard.add()
    return shards
