"""Write a run's scalars to metrics.jsonl, to its loggers and to the terminal."""

import contextlib
import functools
import json
import logging
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from etils import epath

from bert_jax.config import RunConfig
from bert_jax.config.checks import require
from bert_jax.storage.atomic import is_address
from bert_jax.storage.files import JsonObject, file_size, name_path_in_errors
from bert_jax.storage.manifest import files_below
from bert_jax.storage.retries import with_retries
from bert_jax.terminal.log import LOGGER
from bert_jax.terminal.messages import printable, say, warn
from bert_jax.terminal.progress import Waiting, format_duration
from bert_jax.training.loggers import Logger, open_loggers
from bert_jax.training.metrics_file import (
    METRICS,
    TRAIN,
    VALIDATION,
    keep_lines_until,
    read_metrics,
)
from bert_jax.training.metrics_table import MetricsTable

EXAMPLES = "examples.jsonl"


class NullReport(contextlib.nullcontext[None]):
    """Does nothing; used on non-primary processes."""

    def write(self, *_: object) -> None: ...

    write_examples = say = flush = advance = write

    def validation_lines(self) -> list[tuple[int, dict[str, float]]]:
        return []

    def waiting(
        self, what: str, says_end: bool = True
    ) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()


class Report(contextlib.AbstractContextManager["Report", None]):
    """Writes the scalars of a run; used in `with`, on the primary process only.

    Object stores cannot append to files: there, local files are uploaded at `flush`.
    """

    def __init__(self, workdir: epath.Path, first_step: int, config: RunConfig) -> None:
        """Open the files of a run at `first_step`, and drop the lines after it.

        Raise ModuleNotFoundError if the package of a logger is not installed.
        """
        for name in (METRICS, EXAMPLES):
            # A line of step 0 is of the run's start, which a new run writes again.
            keep_lines_until(workdir / name, first_step or -1)
        folder = workdir
        self._stack = contextlib.ExitStack()
        self._uploader: Uploader | None = None
        if is_address(workdir):
            temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            folder = epath.Path(self._stack.enter_context(temporary))
            self._uploader = Uploader(folder, workdir)
            self._stack.callback(self._uploader.close)
            for name in (METRICS, EXAMPLES):
                if (workdir / name).exists():
                    (folder / name).write_bytes((workdir / name).read_bytes())
        self._folder = folder
        loggers = open_loggers(config, workdir, folder, first_step)
        self._loggers: list[Logger] = list(loggers)
        names = (METRICS, EXAMPLES) if config.log_examples else (METRICS,)
        self._files = {name: open(folder / name, "a") for name in names}
        self._num_steps = config.num_steps
        self._first_line: tuple[int, float] | None = None
        if progress := _start_progress_bar(first_step, config.num_steps):
            self._stack.callback(progress.stop)
        self._progress = progress
        self._table = MetricsTable(config.num_steps)

    def __exit__(self, *_: object) -> None:
        self._tell_loggers(lambda logger: logger.close())
        self._loggers.clear()
        with contextlib.suppress(OSError):  # the run has raised it already
            upload = self.flush()
            if upload is not None and (error := upload.exception()) is not None:
                self.say(f"{METRICS} could not be uploaded completely: {error}")
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
        self._stack.close()

    def write(
        self, step: int, split: str, scalars: Mapping[str, float], note: str = ""
    ) -> None:
        """Write a line of `metrics.jsonl`, hand it to the loggers, and show it."""
        finite = {k: v if math.isfinite(v) else None for k, v in scalars.items()}
        line = {"step": step, "split": split}
        require(not line.keys() & finite.keys(), "A score is named step or split.")
        line |= finite
        self._write_line(METRICS, line, flush=True)
        self._tell_loggers(lambda logger: logger.write(step, split, scalars))
        if self._progress:  # which has the time left
            self.advance(step)
        elif split == TRAIN and (left := self._time_left(step)):
            note = f"{left} left"
        self.say("\n".join(self._table.lines(step, split, scalars, note)))

    def validation_lines(self) -> list[tuple[int, dict[str, float]]]:
        """Return the step and scores of each evaluation so far, in order."""
        lines = read_metrics(self._folder / METRICS)[0]
        return [(line.step, line.scalars) for line in lines if line.split == VALIDATION]

    def _tell_loggers(self, call: Callable[[Logger], None]) -> None:
        """Call each logger; one with a problem stops, and a line says so."""
        for logger in list(self._loggers):
            if not logger.problem:
                with logger.recording_problem():
                    call(logger)
            if logger.problem:
                self._loggers.remove(logger)
                problem = logger.problem.rstrip(".")
                warn(f"report={logger.name} stops here: {problem}. The run goes on.")
                with logger.recording_problem():
                    logger.close()

    def write_examples(self, step: int, rows: np.ndarray) -> None:
        """Write the row numbers of the batch of `step`."""
        self._write_line(EXAMPLES, {"step": step, "rows": rows.tolist()})

    def _write_line(self, name: str, line: JsonObject, flush: bool = False) -> None:
        with name_path_in_errors(self._folder / name):
            print(json.dumps(line), file=self._files[name], flush=flush)

    def say(self, message: str) -> None:
        """Log a message; if there is a progress bar, it is shown above it."""
        say(message)

    def advance(self, step: int) -> None:
        """Move the progress bar, if there is one, to a step that has begun."""
        if self._progress:
            self._progress.update(self._progress.task_ids[0], completed=step)

    def waiting(self, what: str, says_end: bool = True) -> Waiting:
        """Return a context that says what the run waits for, and for how long."""
        status = self._show_status if self._progress else None
        return Waiting(what, status, says_end)

    def flush(self) -> Future[None] | None:
        """Flush all files to the operating system.

        Return the upload that was started, if the workdir is in a bucket.
        """
        for name, file in self._files.items():
            with name_path_in_errors(self._folder / name):
                file.flush()
        self._tell_loggers(lambda logger: logger.flush())
        return self._uploader.start() if self._uploader else None

    def _show_status(self, status: str) -> None:
        """Show below the bar what the run waits for; "": nothing."""
        lines = [printable(status)] if status else []
        self._progress.update(self._progress.task_ids[0], lines=lines)

    def _time_left(self, step: int) -> str:
        """Return the time until the last step as H:MM:SS; "" if it is not known yet."""
        # Count from the first line: before it, most time was compilation.
        self._first_line = self._first_line or (step, time.monotonic())
        first_step, start = self._first_line
        if step <= first_step:
            return ""
        seconds_per_step = (time.monotonic() - start) / (step - first_step)
        return format_duration(seconds_per_step * (self._num_steps - step))


def _start_progress_bar(first_step: int, num_steps: int) -> Any:
    """Start a progress bar; return None if the output is not a terminal."""
    if not sys.stdout.isatty() or not LOGGER.isEnabledFor(logging.INFO):
        return None
    from rich import progress
    from rich.console import RenderableType
    from rich.text import Text

    class BarWithLines(progress.Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            yield self.make_tasks_table(self.tasks)
            for task in self.tasks:
                for line in task.fields["lines"]:
                    yield Text(f"  {line}", no_wrap=True, overflow="ellipsis")

    bar = BarWithLines(
        progress.BarColumn(bar_width=20),
        progress.MofNCompleteColumn(),
        progress.TextColumn("steps"),
        progress.TimeRemainingColumn(),
        progress.TextColumn("left"),
    )
    bar.add_task("", total=num_steps, completed=first_step, lines=[])
    bar.start()
    return bar


class Uploader:
    """Uploads the files of a folder to a bucket; only those that have grown."""

    def __init__(self, folder: epath.Path, target: epath.Path) -> None:
        self._folder = folder
        self._target = target
        self._thread = ThreadPoolExecutor(1)
        self._uploaded_sizes: dict[str, int] = {}

    def start(self) -> Future[None]:
        """Start to upload the present content of the files, which are append-only."""
        names = files_below(self._folder)
        sizes = {name: file_size(self._folder / name) for name in names}
        return self._thread.submit(self._upload, sizes)

    def _upload(self, sizes: dict[str, int]) -> None:
        for name, size in sizes.items():
            if self._uploaded_sizes.get(name) != size:
                with (self._folder / name).open("rb") as file:
                    content = file.read(size)
                with_retries(functools.partial(self._write, name, content))
                self._uploaded_sizes[name] = size

    def _write(self, name: str, content: bytes) -> None:
        copy = self._target / name
        with name_path_in_errors(copy):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)

    def close(self) -> None:
        """Wait for the uploads that were started."""
        self._thread.shutdown()
