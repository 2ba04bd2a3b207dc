"""Write a run's scalars to metrics.jsonl, TensorBoard and the terminal."""

import contextlib
import dataclasses
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np
from etils import epath

from bert_jax.storage.atomic import is_address
from bert_jax.storage.files import (
    JsonObject,
    name_path_in_errors,
    require_regular_file,
)
from bert_jax.terminal.messages import printable, say
from bert_jax.terminal.progress import format_duration
from bert_jax.training.tensorboard import TensorBoard
from bert_jax.training.upload import Uploader

METRICS = "metrics.jsonl"
EXAMPLES = "examples.jsonl"
_FORMATS = {
    "loss": "loss {:.4f}",
    "mlm_accuracy": "MLM {:.1%}",
    "nsp_accuracy": "NSP {:.1%}",
    "mlm_perplexity": "perplexity {:.1f}",
    "clm_accuracy": "CLM {:.1%}",
    "clm_perplexity": "perplexity {:.1f}",
    "bits_per_byte": "{:.3f} bits/byte",
    "tokens_per_second": "{:,.0f} tokens/s",
    "mfu": "MFU {:.1%}",
    "data_wait": "data wait {:.1%}",
}
"""Formats of scalars in the terminal; others are shown as name and value."""
_HIDDEN = {
    "mlm_loss",
    "clm_loss",
    "bytes_per_token",
    "nsp_loss",
    "sop_loss",
    "grad_norm",
    "learning_rate",
    "skipped_in_a_row",
}


def keep_lines_until(path: epath.Path, step: int) -> None:
    """Drop the lines after `step`, and a truncated last line, so no step is twice.

    Raises:
        ValueError: a line other than the last is not JSON.
    """
    if not path.exists():
        return
    require_regular_file(path)
    kept_lines = []
    try:
        lines = path.read_text().split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 ({error}); repair or move the file away."
        ) from error
    for number, line in enumerate(lines, 1):
        try:
            if line and json.loads(line)["step"] <= step:
                kept_lines.append(line + "\n")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if number < len(lines):
                raise ValueError(
                    f"{path}, line {number} is not a metrics line ({error}); repair or "
                    "move the file away."
                ) from error
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("".join(kept_lines))
    temporary.replace(path)


def format_scalars(scalars: Mapping[str, float]) -> str:
    """The scalars that the terminal shows, on one line."""
    return "  ".join(
        _FORMATS.get(name, f"{name} {{:.4f}}").format(value)
        for name, value in scalars.items()
        if name not in _HIDDEN and math.isfinite(value)
    )


@dataclasses.dataclass(frozen=True)
class MetricsLine:
    """The scalars of one step and split, NaN where a value was not finite."""

    step: int
    split: str
    scalars: dict[str, float]


def read_metrics(path: epath.Path) -> tuple[list[MetricsLine], int]:
    """Return the lines of a metrics file, and the number of damaged ones.

    A last line without its end is not counted: the run still writes it, or was killed.
    """
    if not path.is_file():
        return [], 0
    texts = path.read_bytes().decode(errors="replace").split("\n")
    lines = [_metrics_line(text) for text in texts]
    damaged = [text for text, line in zip(texts[:-1], lines, strict=False) if not line]
    return [line for line in lines if line], sum(map(bool, damaged))


def _metrics_line(text: str) -> MetricsLine | None:
    """Parse a line; None if it is damaged."""
    with contextlib.suppress(
        ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError
    ):
        values = json.loads(text)
        step, split = values.pop("step"), values.pop("split")
        scalars = {k: math.nan if v is None else v + 0.0 for k, v in values.items()}
        if type(step) is int and isinstance(split, str):
            return MetricsLine(step, split, scalars)
    return None


def read_scores(path: epath.Path, step: int) -> dict[str, float] | None:
    """The validation scores of `step` in a metrics file; None if there are none."""
    for line in read_metrics(path)[0]:
        if (line.step, line.split) == (step, "validation"):
            return line.scalars
    return None


class NullReport(contextlib.nullcontext[None]):
    """Does nothing; used on non-primary processes."""

    def write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        """A no-op, as all methods of this class."""

    def write_examples(self, step: int, rows: np.ndarray) -> None: ...
    def say(self, message: str) -> None: ...
    def flush(self) -> None: ...
    def scores(self, step: int) -> dict[str, float] | None: ...


class Report(contextlib.AbstractContextManager["Report", None]):
    """Writes the scalars of a run; used in `with`, on the primary process only.

    Object stores cannot append to files: there, local files are uploaded at `flush`.
    """

    def __init__(
        self, workdir: epath.Path, first_step: int, num_steps: int, examples: bool
    ) -> None:
        """Open the files of a run at `first_step`, and drop the lines after it.

        Args:
            examples: whether row numbers are written too.
        """
        for name in (METRICS, EXAMPLES):
            keep_lines_until(workdir / name, first_step)
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
        names = (METRICS, EXAMPLES) if examples else (METRICS,)
        self._files = {name: open(folder / name, "a") for name in names}
        self._tensorboard: TensorBoard | None = None
        try:
            self._tensorboard = TensorBoard(folder / "tensorboard", first_step)
        except ImportError:
            say("tensorboardX is not installed: metrics.jsonl only.")
        self._problem_reported = False
        self._num_steps = num_steps
        self._first_line: tuple[int, float] | None = None
        if progress := _start_progress_bar(first_step, num_steps):
            self._stack.callback(progress.stop)
        self._progress = progress

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # the run has raised it already
            upload = self.flush()
            if upload is not None and (error := upload.exception()) is not None:
                self.say(f"{METRICS} could not be uploaded completely: {error}")
        for file in (*self._files.values(), self._tensorboard):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
        self._stack.close()

    def write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        """Write a line of `metrics.jsonl` and its TensorBoard points, and show it."""
        finite = {k: v if math.isfinite(v) else None for k, v in scalars.items()}
        line = {"step": step, "split": split, **finite}
        self._write_line(METRICS, line, flush=True)
        if self._tensorboard:
            self._tensorboard.write(step, split, scalars)
            self._report_problem()
        self._show(step, split, scalars)

    def scores(self, step: int) -> dict[str, float] | None:
        """The validation scores written at `step`; None if there are none."""
        return read_scores(self._folder / METRICS, step)

    def _report_problem(self) -> None:
        problem = self._tensorboard.problem if self._tensorboard else ""
        if problem and not self._problem_reported:
            self._problem_reported = True
            self.say(f"TensorBoard stops here: {problem}. {METRICS} is not affected.")

    def write_examples(self, step: int, rows: np.ndarray) -> None:
        """Write the row numbers of the batch of `step`."""
        self._write_line(EXAMPLES, {"step": step, "rows": rows.tolist()})

    def _write_line(self, name: str, line: JsonObject, flush: bool = False) -> None:
        with name_path_in_errors(self._folder / name):
            print(json.dumps(line), file=self._files[name], flush=flush)

    def say(self, message: str) -> None:
        """Print a message, above the progress bar if there is one."""
        if self._progress:
            console = self._progress.console
            console.print(printable(message), markup=False, highlight=False)
        else:
            say(message)

    def flush(self) -> Future[None] | None:
        """Flush all files to the operating system.

        Returns:
            If the workdir is in a bucket, the upload that was started; else None.
        """
        for name, file in self._files.items():
            with name_path_in_errors(self._folder / name):
                file.flush()
        if self._tensorboard:
            self._tensorboard.flush()
            self._report_problem()
        return self._uploader.start() if self._uploader else None

    def _show(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        if split == "train" and self._progress:
            task = self._progress.task_ids[0]
            self._progress.update(task, completed=step, scalars=format_scalars(scalars))
            return
        eta = ""
        if split == "train":
            # Count from the first line: before it, most time was compilation.
            self._first_line = self._first_line or (step, time.monotonic())
            first_step, start = self._first_line
            if step > first_step:
                seconds_per_step = (time.monotonic() - start) / (step - first_step)
                left = seconds_per_step * (self._num_steps - step)
                eta = f"  {format_duration(left)} left"
        self.say(
            f"step {step}/{self._num_steps}  {split}  {format_scalars(scalars)}{eta}"
        )


def _start_progress_bar(first_step: int, num_steps: int) -> Any:
    """Start a progress bar; return None if the output is not a terminal."""
    if not sys.stdout.isatty():
        return None
    try:
        from rich import progress
    except ImportError:
        return None
    bar = progress.Progress(
        progress.BarColumn(bar_width=20),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[scalars]}"),
        progress.TimeRemainingColumn(),
    )
    bar.add_task("", total=num_steps, completed=first_step, scalars="compiling")
    bar.start()
    return bar
