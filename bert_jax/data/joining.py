"""Shards that grow: the rows of finished chunks, added in the chunks' order.

A chunk's rows first lie in a file of their own, so that chunks may be finished in any
order. They are removed from there when they are in the shard and on the disk. A run
that was killed between finds, by their sha256, how many chunks the shard holds.
"""

import collections
import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import numpy as np
from etils import epath

from bert_jax.data.chunks import Chunk, noted_result, read_rows, rows_path
from bert_jax.data.shards import shard_header
from bert_jax.storage.files import is_regular_file, name_path_in_errors
from bert_jax.storage.manifest import describe_files

_PIECE = 1 << 22


class GrowingShard:
    """A shard and the chunks that it is to hold."""

    def __init__(
        self,
        output: epath.Path,
        chunks: Sequence[Chunk],
        dtype: np.dtype[np.void],
    ) -> None:
        """Keep what an earlier run added, as far as it is what was noted of it."""
        self.name, self.split = chunks[0].shard, chunks[0].split
        self.results: dict[str, dict[str, Any]] = {}
        """What is to be said of each finished chunk, by its name."""
        self._output, self._dtype = output, dtype
        self._waiting = collections.deque(chunks)
        self._rows = 0
        if is_regular_file(self._path):
            with self._path.open("rb") as file:
                file.seek(len(shard_header(dtype, 0)))
                while self._waiting and self._holds_next(file):
                    pass
        for chunk in list(self._waiting):
            result = noted_result(output, chunk)
            if result and read_rows(output, chunk, result, dtype.itemsize) is not None:
                self.results[chunk.name] = result

    @property
    def _path(self) -> epath.Path:
        return self._output / self.name

    @property
    def _end(self) -> int:
        """Where the rows that are in the shard end."""
        header = len(shard_header(self._dtype, 0))
        return header + self._rows * self._dtype.itemsize

    def _holds_next(self, file: BinaryIO) -> bool:
        """Whether the rows of the next chunk follow in the file."""
        chunk = self._waiting[0]
        result = noted_result(self._output, chunk)
        if result is None:
            return False
        left, digest = result["rows"] * self._dtype.itemsize, hashlib.sha256()
        while left and (piece := file.read(min(left, _PIECE))):
            digest.update(piece)
            left -= len(piece)
        if left or digest.hexdigest() != result["sha256"]:
            return False
        self._count(chunk, result)
        return True

    def _count(self, chunk: Chunk, result: dict[str, Any]) -> None:
        """Take the first of the waiting chunks for one that is in the shard."""
        assert self._waiting.popleft() is chunk
        self.results[chunk.name] = result
        self._rows += result["rows"]

    def counted(self, name: str) -> int:
        """How much of something the finished chunks hold, as "tokens"."""
        return sum(result["counts"][name] for result in self.results.values())

    def add(self, finished: Iterable[tuple[Chunk, dict[str, Any]]] = ()) -> None:
        """Note finished chunks, and add the rows of those whose turn it is.

        Raises:
            RuntimeError: the rows of one were altered after they were written.
            OSError: the shard cannot be written.
        """
        self.results |= {chunk.name: result for chunk, result in finished}
        if not self._waiting or self._waiting[0].name not in self.results:
            return
        with name_path_in_errors(self._path):
            if not self._path.exists():
                self._path.write_bytes(shard_header(self._dtype, 0))
            with open(self._path, "r+b") as file:
                # What a killed run added in part is written again.
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
                "same command makes it again. Look at the disk if this comes up often."
            )
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        self._count(chunk, result)
        rows_path(self._output, chunk).unlink()

    def finish(self) -> dict[str, Any]:
        """Say in the header how many rows there are; the entry for the manifest."""
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
    """The shards of all chunks, in order, with what is done of them."""
    parts: dict[str, list[Chunk]] = collections.defaultdict(list)
    for chunk in chunks:
        parts[chunk.shard].append(chunk)
    shards = {name: GrowingShard(output, part, dtype) for name, part in parts.items()}
    for shard in shards.values():
        shard.add()
    return shards
