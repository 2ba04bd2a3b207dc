"""Scalars for TensorBoard, written in the thread that has them."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath


class TensorBoard:
    """An events file. Where it cannot be written, `problem` says why, and no more is.

    tensorboardX's usual writer has a thread of its own, whose errors cannot be caught.
    """

    def __init__(self, directory: epath.Path, first_step: int) -> None:
        """Begin a file whose points hide those after `first_step` of earlier files.

        Raises:
            ImportError: tensorboardX is not installed.
        """
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        self.problem = ""
        """Why nothing is written any more; empty where it is."""
        self._writer: Any = None
        with self._noting_problems():
            directory.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(os.fspath(directory / "events"))
            start = SessionLog(status=SessionLog.START)
            self._add(first_step + 1, session_log=start)

    @contextlib.contextmanager
    def _noting_problems(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.problem = str(error)

    def _add(self, step: int, **content: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(wall_time=time.time(), step=step, **content))

    def write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        """One point of each scalar, named `split/scalar`."""
        from tensorboardX.summary import scalar

        if self.problem:
            return
        with self._noting_problems():
            for name, value in scalars.items():
                self._add(step, summary=scalar(f"{split}/{name}", value))

    def flush(self) -> None:
        """Hand all points to the operating system."""
        if not self.problem:
            with self._noting_problems():
                self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            with self._noting_problems():
                self._writer.close()
