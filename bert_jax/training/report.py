"""Where scalars go: metrics.jsonl (the truth), TensorBoard, the terminal."""

import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from etils import epath

from bert_jax.manifest import files_below

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
    kept = []
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines, 1):
        try:
            if line and json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError) as error:
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


class Silence:
    """What a process has instead of a `Report` when another one reports the run."""

    def __enter__(self) -> "Silence":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        """Nothing, as are the others."""

    def write_examples(self, step: int, rows: Any) -> None: ...
    def say(self, message: str) -> None: ...
    def flush(self) -> None: ...


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
        self._workdir = folder = workdir
        self._own: tempfile.TemporaryDirectory[str] | None = None
        if "://" in str(workdir):
            self._own = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            folder = epath.Path(self._own.name)
            for name in (METRICS, EXAMPLES):
                if (workdir / name).exists():
                    (folder / name).write_bytes((workdir / name).read_bytes())
        self._metrics = open(folder / METRICS, "a")
        self._examples = open(folder / EXAMPLES, "a") if examples else None
        self._tensorboard = _tensorboard(folder / "tensorboard", first_step)
        self._num_steps = num_steps
        self._first_shown: tuple[int, float] | None = None
        self._progress = _progress(first_step, num_steps)

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()
        self._metrics.close()
        if self._examples:
            self._examples.close()
        if self._tensorboard:
            self._tensorboard.close()
        if self._progress:
            self._progress.stop()
        if self._own:
            self._own.cleanup()

    def write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        """One line of `metrics.jsonl`, its TensorBoard points, and a look at it."""
        finite = {k: v if math.isfinite(v) else None for k, v in scalars.items()}
        line = {"step": step, "split": split, **finite}
        self._metrics.write(json.dumps(line) + "\n")
        self._metrics.flush()
        if self._tensorboard:
            for name, value in scalars.items():
                self._tensorboard.add_scalar(f"{split}/{name}", value, step)
        self._show(step, split, scalars)

    def write_examples(self, step: int, rows: Any) -> None:
        """The row numbers that step `step` learned from."""
        assert self._examples is not None
        line = {"step": step, "rows": rows.tolist()}
        self._examples.write(json.dumps(line) + "\n")

    def say(self, message: str) -> None:
        """A remark to whoever watches."""
        if self._progress:
            self._progress.console.print(message, markup=False, highlight=False)
        else:
            print(message, flush=True)

    def flush(self) -> None:
        """Hand all that was written to the operating system, or the object store."""
        self._metrics.flush()
        if self._examples:
            self._examples.flush()
        if self._tensorboard:
            self._tensorboard.flush()
        if self._own:
            self._upload(epath.Path(self._own.name))

    def _upload(self, folder: epath.Path) -> None:
        for name in files_below(folder):
            copy = self._workdir / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((folder / name).read_bytes())

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


def _tensorboard(directory: epath.Path, first_step: int) -> Any:
    """A writer that hides points after `first_step`; None without tensorboardX."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        print("tensorboardX is not installed: metrics.jsonl only.", flush=True)
        return None
    return SummaryWriter(str(directory), purge_step=first_step + 1)


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
