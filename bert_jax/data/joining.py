"""Append the rows of finished chunks to their shards, in the order of the chunks.

A chunk's rows are first written to their own file, so chunks may finish in any order.
The file is deleted once the rows are in the shard and on disk. After an interruption,
the sha256 of the chunks determines how many of them the shard already holds.
"""

import collections
import os
from collections.abc import Sequence

import numpy as np
from etils import epath

from bert_jax.data.chunks import Chunk, chunk_file, read_result, read_rows
from bert_jax.data.shards import shard_header
from bert_jax.data.text_report import TextReport
from bert_jax.storage.files import JsonObject, name_path_in_errors
from bert_jax.storage.manifest import describe_files


class GrowingShard:
    """A shard and the chunks that belong in it."""

    def __init__(
        self, output: epath.Path, chunks: Sequence[Chunk], dtype: np.dtype[np.void]
    ) -> None:
        """Verify and append the chunks that earlier runs finished."""
        self.name, self.split = chunks[0].shard, chunks[0].split
        self.results: dict[str, JsonObject] = {}
        """The result of each finished chunk, by its name."""
        self.text = TextReport()
        """What happened to the text of the finished chunks."""
        self._output, self._dtype, self._path = output, dtype, output / self.name
        self._waiting = collections.deque(chunks)
        self._rows = 0
        for chunk in chunks:
            if (result := read_result(output, chunk)) is None:
                continue
            is_next, size = chunk is self._waiting[0], dtype.itemsize
            if is_next and read_rows(self._path, result, size, self._end) is not None:
                self._waiting.popleft()
                self._rows += result["rows"]
            elif read_rows(chunk_file(output, chunk, "rows"), result, size) is None:
                continue
            self._record(chunk, result)
        self._append_finished()

    @property
    def _end(self) -> int:
        """The file offset at which the shard's rows end."""
        header = len(shard_header(self._dtype, 0))
        return header + self._rows * self._dtype.itemsize

    def add(self, chunk: Chunk, result: JsonObject) -> None:
        """Record a finished chunk, and append rows while the next chunk is finished."""
        self._record(chunk, result)
        self._append_finished()

    def _record(self, chunk: Chunk, result: JsonObject) -> None:
        self.text.update(TextReport.from_json(result["text"]))
        self.results[chunk.name] = {**result, "text": None}  # added up: save memory

    def _append_finished(self) -> None:
        while self._waiting and self._waiting[0].name in self.results:
            chunk = self._waiting.popleft()
            result = self.results[chunk.name]
            path = chunk_file(self._output, chunk, "rows")
            content = read_rows(path, result, self._dtype.itemsize)
            if content is None:
                raise RuntimeError(
                    f"{path} is not what was written there; the same command makes it "
                    "again. Check the disk if this happens often."
                )
            self._write(content, self._end)
            self._rows += result["rows"]
            path.unlink()

    def _write(self, content: bytes, offset: int) -> None:
        mode = "r+b" if self._path.exists() else "xb"
        with name_path_in_errors(self._path), open(self._path, mode) as file:
            # Remove rows that an interrupted run appended only in part. In a new file,
            # zeros stand for the header until all rows are there.
            file.truncate(self._end)
            file.seek(offset)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def finish(self) -> JsonObject:
        """Write the header, with the number of rows; return the manifest entry."""
        assert not self._waiting
        self._write(shard_header(self._dtype, self._rows), 0)
        (entry,) = describe_files(self._output, [self.name])
        return entry | {"split": self.split, "rows": self._rows}
