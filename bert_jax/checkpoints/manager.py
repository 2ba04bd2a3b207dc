"""Save the checkpoints of a run in the background, and remove old ones."""

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import orbax.checkpoint as ocp
from etils import epath
from jaxtyping import PyTree

from bert_jax.checkpoints.steps import selection_scores
from bert_jax.config.model import Params
from bert_jax.distributed.collectives import (
    first_error,
    is_primary,
    raise_on_all_processes,
)
from bert_jax.storage.atomic import absolute, is_address
from bert_jax.storage.files import JsonObject, name_path_if_disk_full, write_json
from bert_jax.storage.manifest import (
    MANIFEST,
    describe_files,
    read_manifest,
    write_manifest,
)
from bert_jax.storage.retries import with_retries

INTERVAL = "interval"
"""The key in a manifest of the losses since the last line of the metrics."""
REMOVED = ".removed"
"""Suffix of a step directory that is being removed."""


@dataclasses.dataclass(eq=False)
class Checkpoints:
    """Saves the checkpoints of a run, and keeps the newest and the best.

    `save` and `wait` are collectives: all processes call them. A failed save is retried
    with the state of a later step.
    """

    directory: epath.Path
    """It is created if it does not exist."""
    keep: int
    """The number of newest checkpoints to keep, besides that with the highest score."""
    config: JsonObject
    """The content of each checkpoint's `config.json`."""
    tokenizer_directory: epath.Path
    """Its files are copied into each checkpoint."""
    max_failed: int = 5
    """The number of failed saves in a row that ends the run."""
    check_lock: Callable[[], None] = lambda: None
    """Raises RuntimeError if another run has taken over the workdir."""

    def __post_init__(self) -> None:
        self.directory = absolute(self.directory)
        self._thread = ThreadPoolExecutor(1)
        self._pending_save: tuple[int, Future[None]] | None = None
        self._pending_scores: list[Future[None]] = []
        self._failed_in_a_row = 0
        self._retry_at: float | None = None
        self._scores: dict[int, float] = {}
        self._messages: list[str] = []
        self._completed: list[int] = []
        self._manager = self._open()

    def _open(self) -> Any:
        # No preservation policy: `_prune` decides by the manifests which steps stay.
        # Orbax needs no metrics files, and must not read those that it wrote for
        # version 0.1.0: they may be truncated.
        options = ocp.CheckpointManagerOptions(
            cleanup_tmp_directories=True,
            save_root_metadata=False,
            lightweight_initialize=True,
        )
        return ocp.CheckpointManager(self.directory, options=options)

    def save(
        self,
        step: int,
        params: Params,
        rest: PyTree,
        flush: Callable[[], Future[None] | None],
        interval: JsonObject | None = None,
        must_succeed: bool = False,
    ) -> None:
        """Start a save; return as soon as the arrays may be overwritten.

        The losses that are not in the metrics yet, as sums, are the manifest's
        `interval`. `flush` writes the run's metrics, or starts and returns their
        upload, which must succeed before the manifest is written. With `must_succeed`,
        wait until the checkpoint is complete, and retry if that fails. Raise
        RuntimeError if too many saves failed in a row, or another run has taken over
        the workdir.
        """
        self.wait()
        uploads = flush()
        with raise_on_all_processes():
            if is_primary():
                self.check_lock()
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(params), optimizer=ocp.args.StandardSave(rest)
        )
        future: Future[None]
        try:
            with name_path_if_disk_full(self.directory / str(step)):
                self._manager.save(step, args=items)
        except Exception as error:
            future = Future()
            future.set_exception(error)
        else:
            future = self._thread.submit(self._complete, step, uploads, interval)
        self._pending_save, self._retry_at = (step, future), None
        while must_succeed and not self.wait():
            time.sleep(self._delay())
            self.save(step, params, rest, flush, interval)

    save_or_raise = functools.partialmethod(save, must_succeed=True)

    def _complete(
        self, step: int, uploads: Future[None] | None, interval: JsonObject | None
    ) -> None:
        """Complete a save once Orbax is done; runs in the background thread."""
        with name_path_if_disk_full(self.directory / str(step)):
            self._manager.wait_until_finished()
            # A barrier: Orbax has waited until every process has written its shards.
            if not is_primary():
                return
            if uploads is not None:
                uploads.result()
            with_retries(lambda: self._write_manifest(step, interval))
            self._completed.append(step)
            self._prune()

    def _write_manifest(self, step: int, interval: JsonObject | None) -> None:
        """Add config and tokenizer to a saved step, and last its manifest."""
        root = self.directory / str(step)
        write_json(self.config, root / "config.json")
        (root / "tokenizer").mkdir(exist_ok=True)
        for path in self.tokenizer_directory.iterdir():
            path.copy(root / "tokenizer" / path.name, overwrite=True)
        files = describe_files(root)
        manifest: JsonObject = {"step": step, "selection_score": self._scores.get(step)}
        added = {INTERVAL: interval} if interval else {}
        write_manifest(manifest | added | {"files": files}, root)

    def record_score(self, step: int, score: float) -> None:
        """Record the score of a saved step; the step with the highest one is kept.

        A no-op on processes other than the primary one, and if `score` is not finite.
        """
        if is_primary() and math.isfinite(score):
            self._scores[step] = score
            future = self._thread.submit(self._write_score, step, score)
            self._pending_scores.append(future)

    def _write_score(self, step: int, score: float) -> None:
        """Atomically replace the manifest of a step by one with the score."""
        root = self.directory / str(step)
        try:
            with contextlib.suppress(FileNotFoundError):  # its save has failed
                previous = read_manifest(root)
                if previous.get("selection_score") != score:
                    manifest = previous | {"selection_score": score}
                    with_retries(lambda: write_manifest(manifest, root))
            self._prune()
        except Exception as error:
            self._messages.append(f"The score of step {step} was not saved: {error}")

    def _prune(self) -> None:
        """Remove complete steps that are neither among the newest nor the best."""
        scores, _ = selection_scores(self.directory)
        kept = set(sorted(scores, reverse=True)[: self.keep])
        if any(score > -math.inf for score in scores.values()):
            kept.add(max(scores, key=lambda step: (scores[step], step)))
        for step in scores.keys() - kept:
            path = self.directory / str(step)
            # If interrupted, the rest does not look complete.
            with contextlib.suppress(OSError):
                if is_address(path):
                    (path / MANIFEST).unlink(missing_ok=True)
                else:
                    path = path.rename(self.directory / f"{step}{REMOVED}")
                path.rmtree()

    def take_messages(self) -> list[str]:
        """Return the messages about failed saves since the last call."""
        messages = self._messages[:]
        # The background thread may append: the list must stay the same object.
        del self._messages[: len(messages)]
        return messages

    def take_completed(self) -> list[epath.Path]:
        """Return the checkpoints that were completed since the last call.

        On processes other than the primary one there are none.
        """
        completed = self._completed[:]
        del self._completed[: len(completed)]
        return [self.directory / str(step) for step in completed]

    @property
    def retry_due(self) -> bool:
        """Whether the last save failed on this process and it is time to retry."""
        if self._pending_save is not None and self._retry_at is None:
            future = self._pending_save[1]
            if future.done() and future.exception() is not None:
                self._retry_at = time.monotonic() + self._delay()
        return self._retry_at is not None and time.monotonic() >= self._retry_at

    def _delay(self) -> float:
        """Return the seconds before the next retry."""
        return float(min(2**self._failed_in_a_row, 60))

    def wait(self) -> bool:
        """Wait for the last save; return whether it succeeded on all processes.

        Raise RuntimeError if too many saves failed in a row.
        """
        for future in self._pending_scores:
            future.result()
        self._pending_scores.clear()
        pending, self._pending_save = self._pending_save, None
        if pending is None:
            return True
        step, future = pending
        error = future.exception()
        problem = first_error("" if error is None else describe_error(error))
        if not problem:
            self._failed_in_a_row, self._retry_at = 0, None
            return True
        self._failed_in_a_row += 1
        self._retry_at = time.monotonic() + self._delay()
        # Its files are removed, and a new Orbax manager is opened.
        with contextlib.suppress(Exception):
            self._manager.close()
        with raise_on_all_processes():
            if is_primary():
                with contextlib.suppress(OSError):
                    (self.directory / str(step)).rmtree(missing_ok=True)
        self._manager = self._open()
        message = f"The checkpoint of step {step} could not be written: {problem}"
        if self._failed_in_a_row >= self.max_failed:
            raise RuntimeError(
                f"{message} This is failed save {self._failed_in_a_row} in a row "
                "(max_failed_saves). Fix the cause and start the same command again."
            )
        self._messages.append(f"{message} It will be tried again.")
        return False

    def close(self) -> None:
        """Wait for the last save, successful or not, and close the directory.

        There is no barrier with the other processes: they may have failed.
        """
        self._thread.shutdown()
        with contextlib.suppress(Exception):
            self._manager.close()


def describe_error(error: BaseException) -> str:
    """Return an error as one line that ends in a full stop."""
    text: object = error
    if isinstance(error, OSError) and error.filename is None and error.strerror:
        text = error.strerror  # without the error number
    line = " ".join(str(text).split()) or type(error).__name__
    return line if line.endswith(".") else f"{line}."
