"""The checkpoints of a run: when they are written, whole, kept and removed."""

import contextlib
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

import orbax.checkpoint as ocp
from etils import epath

from bert_jax.checkpoints.restore import restore_step
from bert_jax.checkpoints.steps import selection_scores
from bert_jax.distributed.collectives import (
    first_error,
    is_primary,
    raise_on_all_processes,
)
from bert_jax.storage.atomic import absolute, is_address
from bert_jax.storage.files import name_path_if_disk_full, write_json
from bert_jax.storage.manifest import (
    MANIFEST,
    describe_files,
    files_below,
    read_manifest,
    write_manifest,
)
from bert_jax.storage.retries import with_retries

Upload: TypeAlias = Future[None]
REMOVED = ".removed"
"""Ends the name of a step directory that is being removed."""


class Checkpoints:
    """The checkpoints of a run: saves in the background, keeps the newest and best.

    A save that fails is counted and tried again with the state of a later step;
    `max_failed` of them in a row end the run.
    """

    def __init__(
        self,
        directory: epath.Path,
        keep: int,
        config: dict[str, Any],
        tokenizer_directory: epath.Path,
        max_failed: int = 5,
        check_lock: Callable[[], None] = lambda: None,
    ) -> None:
        """Open, or begin, the checkpoints under `directory`.

        Args:
            keep: how many of the newest to keep; that of the highest score stays too.
            config: what `config.json` shall hold.
            tokenizer_directory: whose files every checkpoint shall hold.
            max_failed: saves in a row that may fail.
            check_lock: raises RuntimeError where the workdir is another run's by now.
        """
        self._directory = absolute(directory)
        self._keep = keep
        self._config = config
        self._tokenizer_directory = tokenizer_directory
        self._max_failed = max_failed
        self._check_lock = check_lock
        self._thread = ThreadPoolExecutor(1)
        self._saving: tuple[int, Future[None]] | None = None
        self._scoring: list[Future[None]] = []
        self._failed_in_a_row = 0
        self._retry_at: float | None = None
        self._scores: dict[int, float] = {}
        self._notices: list[str] = []
        self._manager = self._open()

    def _open(self) -> Any:
        # No preservation policy: which steps stay is decided by their manifests, and
        # Orbax writes no metrics of its own that it would have to read again.
        options = ocp.CheckpointManagerOptions(
            cleanup_tmp_directories=True,
            save_root_metadata=False,
            # Version 0.1.0 let Orbax write metrics, which it would read here, whole or
            # not.
            lightweight_initialize=True,
        )
        return ocp.CheckpointManager(self._directory, options=options)

    def save(
        self, step: int, params: Any, rest: Any, flush: Callable[[], Upload | None]
    ) -> None:
        """Begin to save; returns once the arrays may change.

        Args:
            flush: writes the run's metrics, or returns their upload: it must have
                succeeded before the checkpoint is whole.

        Raises:
            RuntimeError: too many saves failed in a row, or the workdir is another
                run's by now.
        """
        self.wait()
        uploads = flush()
        with raise_on_all_processes():
            if is_primary():
                self._check_lock()
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(params), optimizer=ocp.args.StandardSave(rest)
        )
        future: Future[None]
        try:
            with name_path_if_disk_full(self._directory / str(step)):
                self._manager.save(step, args=items)
        except Exception as error:
            future = Future()
            future.set_exception(error)
        else:
            future = self._thread.submit(self._complete, step, uploads)
        self._saving, self._retry_at = (step, future), None

    def save_or_raise(
        self, step: int, params: Any, rest: Any, flush: Callable[[], Upload | None]
    ) -> None:
        """Save and wait until the checkpoint is whole, trying again where it fails.

        Arguments and errors are those of `save`.
        """
        self.save(step, params, rest, flush)
        while not self.wait():
            time.sleep(self._delay())
            self.save(step, params, rest, flush)

    def _complete(self, step: int, uploads: Upload | None) -> None:
        """Make a saved step whole: its config, its tokenizer, and last its manifest."""
        with name_path_if_disk_full(self._directory / str(step)):
            self._manager.wait_until_finished()
            # Orbax has waited, in its own thread, until every process had written its
            # part.
            if not is_primary():
                return
            if uploads is not None:
                uploads.result()
            with_retries(lambda: self._finish(step))
            self._prune()

    def _finish(self, step: int) -> None:
        root = self._directory / str(step)
        write_json(self._config, root / "config.json")
        (root / "tokenizer").mkdir(exist_ok=True)
        for path in self._tokenizer_directory.iterdir():
            path.copy(root / "tokenizer" / path.name, overwrite=True)
        files = describe_files(root, files_below(root))
        manifest = {"step": step, "selection_score": self._scores.get(step)}
        write_manifest(manifest | {"files": files}, root)

    def record_score(self, step: int, score: float) -> None:
        """Note the score of a saved step; the highest one's checkpoint is kept.

        Args:
            score: NaN counts as none.
        """
        if is_primary() and math.isfinite(score):
            self._scores[step] = score
            self._scoring.append(self._thread.submit(self._write_score, step, score))

    def _write_score(self, step: int, score: float) -> None:
        """Replace the manifest by one with the score; the checkpoint stays whole."""
        root = self._directory / str(step)
        try:
            with contextlib.suppress(FileNotFoundError):  # its save has failed
                before = read_manifest(root)
                if before.get("selection_score") != score:
                    manifest = before | {"selection_score": score}
                    with_retries(lambda: write_manifest(manifest, root))
            self._prune()
        except Exception as error:
            self._notices.append(f"The score of step {step} is not kept: {error}")

    def _prune(self) -> None:
        """Remove the finished steps that are neither among the newest nor the best."""
        scores, _ = selection_scores(self._directory)
        kept = set(sorted(scores, reverse=True)[: self._keep])
        if any(score > -math.inf for score in scores.values()):
            kept.add(max(scores, key=lambda step: (scores[step], step)))
        for step in scores.keys() - kept:
            with contextlib.suppress(OSError):
                remove_step(self._directory, step)

    def restore(self, step: int, params: Any, rest: Any) -> tuple[Any, Any]:
        """The parameters and the rest of the training state of a whole checkpoint.

        Args:
            params: shapes, dtypes and shardings wanted of the parameters.
            rest: the same of the rest of the training state.
        """
        return restore_step(self._directory / str(step), params, rest)

    def take_messages(self) -> list[str]:
        """What there is to say of saves that failed, once."""
        notices, self._notices = self._notices, []
        return notices

    @property
    def retry_due(self) -> bool:
        """Whether the last save failed on this process, and is to be tried again."""
        if self._saving is not None and self._retry_at is None:
            future = self._saving[1]
            if future.done() and future.exception() is not None:
                self._retry_at = time.monotonic() + self._delay()
        return self._retry_at is not None and time.monotonic() >= self._retry_at

    def _delay(self) -> float:
        """Seconds before the next try."""
        return float(min(2**self._failed_in_a_row, 60))

    def wait(self) -> bool:
        """Whether the last save is whole on all processes; returns when that is known.

        Raises:
            RuntimeError: too many saves in a row could not be written.
        """
        for future in self._scoring:
            future.result()
        self._scoring.clear()
        saving, self._saving = self._saving, None
        if saving is None:
            return True
        step, future = saving
        error = future.exception()
        problem = first_error("" if error is None else describe_error(error))
        if not problem:
            self._failed_in_a_row, self._retry_at = 0, None
            return True
        self._failed_in_a_row += 1
        self._retry_at = time.monotonic() + self._delay()
        self._discard(step)
        told = f"The checkpoint of step {step} could not be written: {problem}"
        if self._failed_in_a_row >= self._max_failed:
            raise RuntimeError(
                f"{told} That was save {self._failed_in_a_row} in a row that failed "
                "(max_failed_saves). Mend it and start the same command again."
            )
        self._notices.append(f"{told} It will be tried again.")
        return False

    def _discard(self, step: int) -> None:
        """Remove what a save that failed has left, and begin with Orbax afresh."""
        with contextlib.suppress(Exception):
            self._manager.close()
        with raise_on_all_processes():
            if is_primary():
                with contextlib.suppress(OSError):
                    (self._directory / str(step)).rmtree(missing_ok=True)
        self._manager = self._open()

    def close(self) -> None:
        """Let the last save end, well or not, and let go of the directory.

        Other processes are not waited for: they may have failed.
        """
        self._thread.shutdown()
        with contextlib.suppress(Exception):
            self._manager.close()


def remove_step(directory: epath.Path, step: int) -> None:
    """Remove a checkpoint; one that is half removed never reads as whole."""
    place = directory / str(step)
    if is_address(place):
        (place / MANIFEST).unlink(missing_ok=True)
    else:
        place = place.rename(directory / f"{step}{REMOVED}")
    place.rmtree()


def describe_error(error: BaseException) -> str:
    """An error in one line, ended by a full stop, its file named where it has one."""
    told: object = error
    if isinstance(error, OSError) and error.filename is None and error.strerror:
        told = error.strerror  # without its number
    line = " ".join(str(told).split()) or type(error).__name__
    return line if line.endswith(".") else f"{line}."
