"""What takes a run's lines besides `metrics.jsonl`, by the names of `report`."""

import abc
import contextlib
import importlib.util
import logging
import math
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

from etils import epath

from bert_jax.config import RunConfig
from bert_jax.config.checks import require
from bert_jax.config.serialization import to_dict
from bert_jax.storage.atomic import is_address
from bert_jax.tables.write import write_rows
from bert_jax.terminal.messages import warn
from bert_jax.training.metrics_file import METRICS, VALIDATION, read_metrics

CSV = "metrics.csv"
RUN_ID = "wandb_run_id.txt"


class Logger(abc.ABC):
    """Takes the lines of a run, which goes on without it if a method raises an error.

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

    @abc.abstractmethod
    def write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        """Take a line: the scalars of one step and split."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Hand everything to the operating system, before a checkpoint."""

    @abc.abstractmethod
    def close(self) -> None:
        """Write what is left, and free what it holds, also after an error."""


@final
class CsvTable(Logger):
    """`metrics.csv`: `metrics.jsonl` as a table, with a column for each scalar.

    All of it is written at each evaluation and checkpoint, since columns may be added.
    """

    name = "csv"

    def __init__(self, folder: epath.Path) -> None:
        self._folder = folder

    def write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        if split == VALIDATION:
            self.flush()

    def flush(self) -> None:
        rows = [
            {"step": line.step, "split": line.split}
            | {k: value for k, value in line.scalars.items() if math.isfinite(value)}
            for line in read_metrics(self._folder / METRICS)[0]
        ]
        if rows:
            write_rows([rows], Path(self._folder / CSV))

    close = flush


@final
class TensorBoard(Logger):
    """Writes an events file.

    tensorboardX's usual writer uses a thread of its own, whose errors cannot be caught.
    """

    name = "tensorboard"

    def __init__(self, directory: epath.Path, first_step: int) -> None:
        """Begin a file that hides the points after `first_step` of earlier files.

        Raise ModuleNotFoundError if tensorboardX is not installed.
        """
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        self._writer: Any = None
        with self.recording_problem():
            directory.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(os.fspath(directory / "events"))
            start = SessionLog(status=SessionLog.START)
            # A new run also writes the point of step 0 again.
            self._add(first_step + 1 if first_step else 0, session_log=start)

    def _add(self, step: int, **content: object) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(wall_time=time.time(), step=step, **content))

    def write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        """Write one point of each scalar, named `split/scalar`."""
        from tensorboardX.summary import scalar

        # NaN is a point, too; the run itself says that it has diverged.
        logging.getLogger("tensorboardX.x2num").setLevel(logging.ERROR)
        for name, value in scalars.items():
            self._add(step, summary=scalar(f"{split}/{name}", value))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@final
class WeightsAndBiases(Logger):
    """A run of the package `wandb`; a resumed run of ours continues it.

    The environment variables of `wandb` decide the rest, such as WANDB_PROJECT and
    WANDB_MODE=offline, in which the run is kept in the directory `wandb`.
    """

    name = "wandb"

    def __init__(self, config: RunConfig, workdir: epath.Path) -> None:
        """Start or continue the run; its id is kept in `workdir`.

        Its files are in the directory `wandb` of `workdir`, or of the current directory
        if `workdir` is in a bucket.
        """
        self._run: Any = None
        with self.recording_problem():
            import wandb

            identifier = workdir / RUN_ID
            if not identifier.exists():
                identifier.write_text(secrets.token_hex(4) + "\n")
            self._run = wandb.init(
                id=identifier.read_text().strip(),
                resume="allow",
                name=None if "WANDB_NAME" in os.environ else workdir.name,
                project=os.environ.get("WANDB_PROJECT", "bert_jax"),
                dir=None if is_address(workdir) else os.fspath(workdir),
                config=to_dict(config),
                # A run of wandb that the calling program has open stays its own.
                settings=wandb.Settings(
                    console="off", silent=True, reinit="create_new"
                ),
            )
            # wandb's own step cannot go back, as the lines of a resumed run may.
            self._run.define_metric("*", step_metric="step")

    def write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        names = {f"{split}/{name}": value for name, value in scalars.items()}
        self._run.log({"step": step} | names)

    def flush(self) -> None:
        """A no-op: a process of wandb's own writes the points at once."""

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()


def require_loggers(config: RunConfig) -> None:
    """Raise ValueError if the package of a logger is missing, before a run begins."""
    require(
        "wandb" not in config.report or importlib.util.find_spec("wandb") is not None,
        "report=wandb needs the package wandb, which is not installed: pip install "
        "'bert_jax[wandb]', or leave it out of --report.",
    )


def open_loggers(
    config: RunConfig, workdir: epath.Path, folder: epath.Path, first_step: int
) -> Iterator[Logger]:
    """Yield the loggers that `config.report` names, in its order.

    The run's files are in the local directory `folder`; `workdir` may be in a bucket.
    """
    for name in dict.fromkeys(config.report):
        if name == "tensorboard":
            try:
                yield TensorBoard(folder / "tensorboard", first_step)
            except ModuleNotFoundError:  # it is the default, and no run needs it
                warn("tensorboardX is not installed: nothing is written for it.")
        elif name == "csv":
            yield CsvTable(folder)
        else:
            yield WeightsAndBiases(config, workdir)
