"""The interface of what takes a run's lines, besides `metrics.jsonl`."""

import abc
import contextlib
from collections.abc import Callable, Iterator, Mapping


class Logger(abc.ABC):
    """Takes the lines of a run. After an error it stops: the run does not depend on it.

    Its `name` is its value in the option `report`.
    """

    name: str
    problem: str = ""
    """The error that stopped it; "" if there was none."""

    @contextlib.contextmanager
    def recording_problem(self) -> Iterator[None]:
        """Record an error in `problem`, and do not raise it."""
        try:
            yield
        except Exception as error:
            self.problem = " ".join(f"{error}".split()) or type(error).__name__

    def write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        """Take a line: the scalars of one step and split."""
        self._unless_stopped(lambda: self._write(step, split, scalars))

    def flush(self) -> None:
        """Hand everything to the operating system, before a checkpoint."""
        self._unless_stopped(self._flush)

    def close(self) -> None:
        """Write what is left, and free what it holds, also after an error."""
        with self.recording_problem():
            self._close()

    def _unless_stopped(self, action: Callable[[], None]) -> None:
        if not self.problem:
            with self.recording_problem():
                action()

    @abc.abstractmethod
    def _write(self, step: int, split: str, scalars: Mapping[str, float]) -> None: ...

    @abc.abstractmethod
    def _flush(self) -> None: ...

    @abc.abstractmethod
    def _close(self) -> None: ...
