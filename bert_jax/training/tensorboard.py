"""Write scalars for TensorBoard, in the caller's thread."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath


class TensorBoard:
    """Writes an events file; after an error it stops, and `problem` has the reason.

    tensorboardX's usual writer uses a thread of its own, whose errors cannot be caught.
    """

    def __init__(self, directory: epath.Path, first_step: int) -> None:
        """Begin a file that hides the points after `first_step` of earlier files.

        Raises:
            ImportError: tensorboardX is not installed.
        """
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        self.problem = ""
        """The error that stopped the writer; "" if there was none."""
        self._writer: Any = None
        with self._recording_problem():
            directory.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(os.fspath(directory / "events"))
            start = SessionLog(status=SessionLog.START)
            self._add(first_step + 1, session_log=start)

    @contextlib.contextmanager
    def _recording_problem(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.problem = str(error)

    def _add(self, step: int, **content: object) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(wall_time=time.time(), step=step, **content))

    def write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        """Write one point of each scalar, named `split/scalar`."""
        from tensorboardX.summary import scalar

        if self.problem:
            return
        with self._recording_problem():
            for name, value in scalars.items():
                self._add(step, summary=scalar(f"{split}/{name}", value))

    def flush(self) -> None:
        """Flush all points to the operating system."""
        if not self.problem:
            with self._recording_problem():
                self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            with self._recording_problem():
                self._writer.close()
