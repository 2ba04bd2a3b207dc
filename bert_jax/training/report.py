"""Where scalars go: metrics.jsonl (the truth), TensorBoard, the terminal."""

import contextlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from etils import epath

from bert_jax.storage.atomic import is_address
from bert_jax.storage.files import name_path_in_errors, require_regular_file
from bert_jax.terminal.messages import printable, say
from bert_jax.training.tensorboard import TensorBoard
from bert_jax.training.upload import Uploader

METRICS = "metrics.jsonl"
EXAMPLES = "examples.jsonl"
_SHOWN = {
    "loss": "loss {:.4f}",
    "mlm_accuracy": "MLM {:.1%}",
    "nsp_accuracy": "NSP {:.1%}",
    "mlm_perplexity": "perplexity {:.1f}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "mfu": "MFU {:.1%}",
    "data_wait": "data wait {:.1%}",
}
"""How the terminal shows a scalar, where not by its name."""
_HIDDEN = {
    "mlm_loss",
    "nsp_loss",
    "sop_loss",
    "grad_norm",
    "learning_rate",
    "skipped_in_a_row",
}


def keep_lines_until(path: epath.Path, step: int) -> None:
    """Drop the lines after `step`, and a torn last one, so that each step stands once.

    Raises:
        ValueError: a line other than the last is not JSON.
    """
    if not path.exists():
        return
    require_regular_file(path)
    kept = []
    try:
        lines = path.read_text().split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 ({error}); repair or move the file away."
        ) from error
    for number, line in enumerate(lines, 1):
        try:
            if line and json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if number < len(lines):
                raise ValueError(
                    f"{path}, line {number} is not a metrics line ({error}); repair or "
                    "move the file away."
                ) from error
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("".join(kept))
    temporary.replace(path)


def shown(scalars: Mapping[str, float]) -> str:
    """The scalars that a person watches, on one line."""
    return "  ".join(
        _SHOWN.get(name, f"{name} {{:.4f}}").format(value)
        for name, value in scalars.items()
        if name not in _HIDDEN and math.isfinite(value)
    )


def scores_at(path: epath.Path, step: int) -> dict[str, float] | None:
    """What a metrics file says of the validation rows at `step`; None: nothing."""
    if not path.is_file():
        return None
    for line in path.read_bytes().decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            scalars = json.loads(line)
            if (scalars.pop("step"), scalars.pop("split")) == (step, "validation"):
                return {k: math.nan if v is None else v for k, v in scalars.items()}
    return None


class NullReport:
    """Does nothing; used on the processes that are not the primary one."""

    def __enter__(self) -> "NullReport":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        """Does nothing, as all methods here."""

    def write_examples(self, step: int, rows: Any) -> None: ...
    def say(self, message: str) -> None: ...
    def flush(self) -> None: ...
    def scores(self, step: int) -> dict[str, float] | None: ...


class Report:
    """Writes scalars as a run goes. Used on process 0 alone, within `with`.

    To an object store, which cannot add to a file, it hands whole ones at each `flush`.
    """

    def __init__(
        self, workdir: epath.Path, first_step: int, num_steps: int, examples: bool
    ) -> None:
        """Continue the files of a run at `first_step`; lines after it are dropped.

        Args:
            examples: whether row numbers will be written too.
        """
        for name in (METRICS, EXAMPLES):
            keep_lines_until(workdir / name, first_step)
        folder = workdir
        self._own: tempfile.TemporaryDirectory[str] | None = None
        self._uploader: Uploader | None = None
        if is_address(workdir):
            self._own = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            folder = epath.Path(self._own.name)
            self._uploader = Uploader(folder, workdir)
            for name in (METRICS, EXAMPLES):
                if (workdir / name).exists():
                    (folder / name).write_bytes((workdir / name).read_bytes())
        self._folder = folder
        self._metrics = open(folder / METRICS, "a")
        self._examples = open(folder / EXAMPLES, "a") if examples else None
        self._tensorboard = _tensorboard(folder / "tensorboard", first_step)
        self._problem_said = False
        self._num_steps = num_steps
        self._first_shown: tuple[int, float] | None = None
        self._progress = _progress(first_step, num_steps)

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # the run's own error says it already
            upload = self.flush()
            if upload is not None and (error := upload.exception()) is not None:
                self.say(f"{METRICS} could not be uploaded to the end: {error}")
        for file in (self._metrics, self._examples, self._tensorboard):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
        if self._progress:
            self._progress.stop()
        if self._uploader:
            self._uploader.close()
        if self._own:
            self._own.cleanup()

    def write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        """One line of `metrics.jsonl`, its TensorBoard points, and a look at it."""
        finite = {k: v if math.isfinite(v) else None for k, v in scalars.items()}
        line = {"step": step, "split": split, **finite}
        with name_path_in_errors(self._folder / METRICS):
            self._metrics.write(json.dumps(line) + "\n")
            self._metrics.flush()
        if self._tensorboard:
            self._tensorboard.write(step, split, scalars)
            self._say_problem()
        self._show(step, split, scalars)

    def scores(self, step: int) -> dict[str, float] | None:
        """What was written of the validation rows at `step`; None: nothing."""
        return scores_at(self._folder / METRICS, step)

    def _say_problem(self) -> None:
        problem = self._tensorboard.problem if self._tensorboard else ""
        if problem and not self._problem_said:
            self._problem_said = True
            self.say(f"No more points for TensorBoard: {problem}. {METRICS} goes on.")

    def write_examples(self, step: int, rows: Any) -> None:
        """The row numbers that step `step` learned from."""
        assert self._examples is not None
        line = {"step": step, "rows": rows.tolist()}
        with name_path_in_errors(self._folder / EXAMPLES):
            self._examples.write(json.dumps(line) + "\n")

    def say(self, message: str) -> None:
        """A remark to whoever watches."""
        if self._progress:
            console = self._progress.console
            console.print(printable(message), markup=False, highlight=False)
        else:
            say(message)

    def flush(self) -> Future[None] | None:
        """Hand all that was written to the operating system, or begin to upload it.

        Returns:
            The upload, if there is one.
        """
        with name_path_in_errors(self._folder / METRICS):
            self._metrics.flush()
        if self._examples:
            with name_path_in_errors(self._folder / EXAMPLES):
                self._examples.flush()
        if self._tensorboard:
            self._tensorboard.flush()
            self._say_problem()
        return self._uploader.start() if self._uploader else None

    def _show(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        if split == "train" and self._progress:
            task = self._progress.task_ids[0]
            self._progress.update(task, completed=step, scalars=shown(scalars))
            return
        eta = ""
        if split == "train":
            # What came before the first line was mostly compilation.
            self._first_shown = self._first_shown or (step, time.monotonic())
            since, start = self._first_shown
        if split == "train" and step > since:
            passed = time.monotonic() - start
            left = passed / (step - since) * (self._num_steps - step)
            eta = f"  {_duration(left)} left"
        self.say(f"step {step}/{self._num_steps}  {split}  {shown(scalars)}{eta}")


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def _tensorboard(directory: epath.Path, first_step: int) -> TensorBoard | None:
    """A writer that hides points after `first_step`; None without tensorboardX."""
    try:
        return TensorBoard(directory, first_step)
    except ImportError:
        say("tensorboardX is not installed: metrics.jsonl only.")
        return None


def _progress(first_step: int, num_steps: int) -> Any:
    """A live line on a terminal; None where the output is not one."""
    if not sys.stdout.isatty():
        return None
    try:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )
    except ImportError:
        return None
    progress = Progress(
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[scalars]}"),
        TimeRemainingColumn(),
    )
    progress.add_task("", total=num_steps, completed=first_step, scalars="compiling")
    progress.start()
    return progress
