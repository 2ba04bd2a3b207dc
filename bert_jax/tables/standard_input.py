"""Standard input: its lines, and whether the next one is there already."""

import functools
import io
import select
import sys
from typing import cast

_PIECE_BYTES = 1 << 16


class LineReader:
    """Reads the lines of a stream; of Python's readers none says if one is there."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream, self._buffer, self._has_ended = stream, bytearray(), False

    def readline(self, limit: int = -1) -> bytes:
        """Return the next line with its end, or its first `limit` bytes."""
        while not (self._ends() or 0 <= limit <= len(self._buffer)):
            self._read()
        size = self._buffer.find(b"\n") + 1 or len(self._buffer)
        line = bytes(self._buffer[: size if limit < 0 else min(size, limit)])
        del self._buffer[: len(line)]
        return line

    def has_line(self) -> bool:
        """Return whether `readline` would not wait, as it does not at the end."""
        while not self._ends() and self._is_ready():
            self._read()
        return self._ends()

    def _ends(self) -> bool:
        return self._has_ended or b"\n" in self._buffer

    def _read(self) -> None:
        piece = self._stream.read1(_PIECE_BYTES)
        self._buffer += piece
        self._has_ended = not piece

    def _is_ready(self) -> bool:
        try:
            return bool(select.select([self._stream], [], [], 0)[0])
        except (OSError, ValueError):  # bytes in memory, or no system with `select`
            return True


@functools.lru_cache(1)
def _reader(stream: io.BufferedIOBase) -> LineReader:
    return LineReader(stream)


def stdin_reader() -> LineReader:
    """Return the one reader of standard input."""
    return _reader(cast(io.BufferedIOBase, sys.stdin.buffer))


def announce_typing() -> bool:
    """Return whether a person types standard input; say then how to end it."""
    is_typed = sys.stdin is not None and sys.stdin.isatty()
    if is_typed:
        print("Type a text, and Enter; Ctrl-D ends.", file=sys.stderr, flush=True)
    return is_typed
