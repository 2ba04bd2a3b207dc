"""Write scalars for TensorBoard, in the caller's thread."""

import logging
import os
import time
from collections.abc import Mapping
from typing import Any, final

from etils import epath

from bert_jax.training.logger import Logger


@final
class TensorBoard(Logger):
    """Writes an events file.

    tensorboardX's usual writer uses a thread of its own, whose errors cannot be caught.
    """

    name = "tensorboard"

    def __init__(self, directory: epath.Path, first_step: int) -> None:
        """Begin a file that hides the points after `first_step` of earlier files.

        Raises:
            ModuleNotFoundError: tensorboardX is not installed.
        """
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        self._writer: Any = None
        with self.recording_problem():
            directory.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(os.fspath(directory / "events"))
            start = SessionLog(status=SessionLog.START)
            self._add(first_step + 1, session_log=start)

    def _add(self, step: int, **content: object) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(wall_time=time.time(), step=step, **content))

    def _write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        """Write one point of each scalar, named `split/scalar`."""
        from tensorboardX.summary import scalar

        # NaN is a point, too; the run itself says that it has diverged.
        logging.getLogger("tensorboardX.x2num").setLevel(logging.ERROR)
        for name, value in scalars.items():
            self._add(step, summary=scalar(f"{split}/{name}", value))

    def _flush(self) -> None:
        self._writer.flush()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
