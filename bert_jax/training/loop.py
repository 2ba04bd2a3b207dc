"""The training loop of all tasks."""

import collections
import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from typing import ParamSpec, TypeVar

import jax
from flax import serialization
from jax.sharding import Mesh

from bert_jax.checkpoints.manager import Checkpoints
from bert_jax.checkpoints.steps import CHECKPOINTS
from bert_jax.config import FinetuneConfig, RunConfig
from bert_jax.config.serialization import to_dict
from bert_jax.data.pipeline import stream
from bert_jax.distributed.collectives import (
    AsyncMax,
    broadcast_from_primary,
    is_primary,
    raise_on_all_processes,
)
from bert_jax.distributed.mesh import host_shard
from bert_jax.distributed.sharding import to_global_arrays
from bert_jax.model.finite import nonfinite_names
from bert_jax.tasks.task import DeviceBatch, Task
from bert_jax.training import faults
from bert_jax.training.best_score import BestScore
from bert_jax.training.callbacks import Callbacks
from bert_jax.training.interval import Clock, Interval
from bert_jax.training.metrics_file import TRAIN, VALIDATION
from bert_jax.training.profile import Profile
from bert_jax.training.report import NullReport, Report
from bert_jax.training.run import Run
from bert_jax.training.start import place_fixed_params, starting_state
from bert_jax.training.step import (
    check_host_shard,
    check_objective,
    evaluate,
    with_fixed_params,
)

_BATCHES_AHEAD = 2


def device_batches(
    task: Task, first_step: int, last_step: int, mesh: Mesh, clock: Clock
) -> Generator[DeviceBatch, None, None]:
    """Yield the batches of a range of steps; two are transferred ahead of time."""
    queue: collections.deque[tuple[int, float, DeviceBatch]] = collections.deque()
    # For batches of several shapes, tf.data does not read ahead any better.
    with_tensorflow = None if task.one_shape else False
    reader = stream(task.batch, first_step, last_step, with_tensorflow)
    with closing(reader) as batches:
        while True:
            start = time.monotonic()
            batch = next(batches, None)
            clock.wait_seconds += time.monotonic() - start
            if batch is not None:
                # Transfers are asynchronous: this one runs beside the steps before it.
                tokens, flops = task.num_tokens(batch), task.flops(batch)
                queue.append((tokens, flops, to_global_arrays(batch, mesh)))
                if len(queue) <= _BATCHES_AHEAD:
                    continue
            if not queue:
                return
            tokens, flops, arrays = queue.popleft()
            clock.tokens += tokens
            clock.flops += flops
            yield arrays


class _TrainingRun:
    """The state of a run, what it has open, and its steps."""

    def __init__(
        self, run: Run[RunConfig], checkpoints: Checkpoints, stack: ExitStack
    ) -> None:
        """Start or restore the run; `stack` closes in reverse order what is opened."""
        task, config, mesh = run.task, run.config, run.mesh
        self._run, self._checkpoints = run, checkpoints
        self._task, self._config, self._mesh = task, config, mesh
        self._watchdog = stack.enter_context(
            faults.Watchdog(
                config.hang_timeout_minutes, config.first_step_timeout_minutes
            )
        )
        self._state = starting_state(run, checkpoints)
        self._fixed_params = place_fixed_params(task, mesh)
        self._step = self._first_step = int(self._state.step)
        assert self._step >= getattr(getattr(config, "data", None), "first_step", 0)
        self._saved_step = run.resume.step if run.resume else None
        self._report: Report | NullReport = NullReport()
        with raise_on_all_processes():
            if is_primary():
                self._report = Report(run.workdir, self._step, config)
        stack.enter_context(self._report)
        self._callbacks = Callbacks(run.callbacks if is_primary() else ())
        for problem in run.resume.problems if run.resume else ():
            self._report.say(f"Skipped a newer checkpoint: {problem}")
        if self._step:
            self._report.say(f"Resuming from the checkpoint at step {self._step}.")
        profile = stack.enter_context(Profile(config, run.workdir, self._step))
        # The first calls of both compile them.
        step = profile.wrap(with_fixed_params(run.train_step(), self._fixed_params))
        waiting = self._report.waiting
        self._train_step = announce_compilation(step, "the training step", waiting)
        evaluation = run.eval_step()
        self._eval_step = announce_compilation(evaluation, "the evaluation", waiting)
        self._signals = stack.enter_context(faults.StopSignals())
        self._async_max = AsyncMax()
        _, num_shards = host_shard(mesh, jax.process_index())
        self._clock = Clock(mesh.size, num_shards)
        sums = run.resume and run.resume.interval
        self._interval = Interval.resumed(task.objective, sums, task.weights)
        self._best = BestScore()

    def has_trained(self) -> bool:
        """Whether the first step has ended."""
        return self._step > self._first_step

    def train(self) -> dict[str, float]:
        """Train up to the last step, and return the scores after it."""
        num_steps = self._config.num_steps
        try:
            scores = None
            if self._run.resume:
                scores = self._restore_scores(self._run.resume.incomparable_until)
            elif self._task.scores_start and not self._step:
                self._validate()
            for batch in self._batches():
                self._train_on(batch)
                # Poll only once per step: a signal that arrived between two polls
                # would stop the run without a checkpoint.
                retry = faults.RETRY_SAVE * self._checkpoints.retry_due
                request = self._async_max.all_reduce(self._signals.received or retry)
                if request or self._is_due(self._config.checkpoint_every):
                    self._save()
                if request > faults.RETRY_SAVE and self._step < num_steps:
                    raise faults.StopRequested(request)
                if self._is_due(self._config.eval_every):
                    scores = self._validate()
                self._report_checkpoints()
                if self._has_lost_patience():
                    break
            if self._step < num_steps:
                self._stop_early()
            # The last save must have succeeded.
            if not self._checkpoints.wait():
                self._save(must_succeed=True)
            self._report_checkpoints()
        except faults.StopRequested as stop:
            # A step without a complete checkpoint is saved now.
            is_saved = self._saved_step == self._step and self._checkpoints.wait()
            if self._step and not is_saved:
                self._save(must_succeed=True)
            saved = self._saved_step == self._step
            self._report_checkpoints()
            raise faults.InterruptedRun(stop.signal_number, self._step, saved) from None
        if scores is None:
            self._report.say("There are no validation rows to evaluate on.")
        return faults.finite_scores(scores, self._step)

    def _batches(self) -> Iterator[DeviceBatch]:
        task, step, num_steps = self._task, self._step, self._config.num_steps
        if step < num_steps:
            params = self._state.params | self._fixed_params
            batch = task.batch(step)
            check_objective(task, params, batch)
            _, num_shards = host_shard(self._mesh, jax.process_index())
            check_host_shard(task, batch, self._config.batch_size, num_shards)
        last = step if self._has_lost_patience() else num_steps
        self._clock.restart()
        return device_batches(task, step, last, self._mesh, self._clock)

    def _is_due(self, every: int) -> bool:
        return self._step == self._config.num_steps or self._step % every == 0

    def _restore_scores(self, incomparable_until: int) -> dict[str, float] | None:
        """Restore the best score of a resumed run; return the scores of this step."""
        lines = broadcast_from_primary(self._report.validation_lines())
        for step, scores in lines:
            if step > incomparable_until:
                self._best.add(step, self._task.selection_score(scores))
        if not (self._is_due(self._config.eval_every) or self._has_lost_patience()):
            return None
        # A run that was stopped after a save may not have evaluated it, or may not have
        # written the score into the checkpoint.
        here = dict(lines).get(self._step)
        if here is None:
            return self._validate()
        if self._step > incomparable_until:
            score = self._task.selection_score(here)
            self._checkpoints.record_score(self._step, score)
        return here

    def _has_lost_patience(self) -> bool:
        """Whether too many evaluations in a row brought no better score."""
        patience = self._config.patience
        return 0 < patience <= self._best.num_without_gain

    def _stop_early(self) -> None:
        """Save the step, at which the same command ends again."""
        # Without its optimizer, the run cannot go on.
        goes_on = self._config.keep_optimizer_states != "none"
        self._report.say(
            f"Ended at step {self._step} of {self._config.num_steps}: "
            f"{self._best.why_stopped()}."
            f"{' To train on, raise --patience.' if goes_on else ''}"
        )
        if self._saved_step != self._step:
            self._save(must_succeed=True)

    def _train_on(self, batch: DeviceBatch) -> None:
        # Only starts the step: the host goes on to the next batch meanwhile. The old
        # state's memory is donated, and must not be used again.
        self._state, scalars, sums = self._train_step(self._state, batch)
        self._interval.add(sums)
        if not self.has_trained():
            # Compilation takes most of the first step: do not measure it.
            jax.block_until_ready(scalars)
            self._clock.restart()
        self._watchdog.beat()
        if self._config.log_examples:
            rows = self._task.row_numbers(self._step)
            self._report.write_examples(self._step + 1, rows)
        self._step += 1
        self._report.advance(self._step)
        if self._is_due(self._config.log_every):
            # Reading the scalars waits for the step; in between, the host is ahead.
            values = {k: float(v) for k, v in jax.device_get(scalars).items()}
            is_last = self._step == self._config.num_steps
            faults.check_finite(values["skipped_in_a_row"], self._step, is_last)
            values |= self._interval.means() | self._clock.rates()
            self._report.write(self._step, TRAIN, values)
            self._callbacks.on_log(self._step, values)
            self._clock.restart()

    def _validate(self) -> dict[str, float] | None:
        """Evaluate; write the scores, and record the checkpoint's score."""
        task, params = self._task, self._state.params | self._fixed_params
        with self._report.waiting("evaluating", says_end=False):
            scores = evaluate(
                task, self._eval_step, params, self._mesh, self._stop_signal
            )
        # All processes must agree on patience: a score of each may differ in last bits.
        scores = broadcast_from_primary(scores)
        if scores is not None:
            score = task.selection_score(scores)
            self._best.add(self._step, score)
            note = self._best.note(self._step) if self._step else "before training"
            self._report.write(self._step, VALIDATION, scores, note)
            if self._step:
                self._checkpoints.record_score(self._step, score)
            # The model of a fine-tuning run is its best checkpoint.
            is_model = isinstance(self._config, FinetuneConfig)
            if is_model and self._best.step == self._step != self._saved_step:
                self._save()
            self._callbacks.on_evaluation(self._step, scores)
        self._clock.restart()
        return scores

    def _report_checkpoints(self) -> None:
        """Say what could not be saved, and tell the callbacks what is complete."""
        for message in self._checkpoints.take_messages():
            self._report.say(message)
        for path in self._checkpoints.take_completed():
            self._callbacks.on_checkpoint(int(path.name), path)

    def _stop_signal(self) -> int:
        """Return a stop signal that any process received, or 0; a collective."""
        self._watchdog.beat(self.has_trained())
        number = self._async_max.all_reduce(self._signals.received or 0)
        return number if number > faults.RETRY_SAVE else 0

    def _save(self, must_succeed: bool = False) -> None:
        """Start a save, unless the update was skipped or a parameter is not finite."""
        problem = "its update was skipped" if int(self._state.skipped_in_a_row) else ""
        if not problem and (names := nonfinite_names(self._state.params)):
            problem = f"{names[0]} and {len(names) - 1} other parameters are not finite"
        is_end = self._step == self._config.num_steps or self._has_lost_patience()
        if problem and is_end:
            raise faults.DivergedRun(f"Step {self._step} cannot be saved: {problem}")
        if problem:
            self._report.say(f"No checkpoint at step {self._step}: {problem}.")
            return
        # Parameters are stored apart, for what loads a model without its optimizer.
        rest = serialization.to_state_dict(self._state)
        params, interval = rest.pop("params"), self._interval.sums()
        # Report the save before: this one may remove it, once it is complete.
        self._checkpoints.wait()
        self._report_checkpoints()
        self._checkpoints.save(
            self._step, params, rest, self._report.flush, interval, must_succeed
        )
        self._saved_step = self._step


def fit(run: Run[RunConfig]) -> dict[str, float]:
    """Train in `run.workdir`, whose files are written, up to `config.num_steps`.

    Return the scores over the validation rows after the last step, which `patience` may
    make an earlier one.

    Raises:
        InterruptedRun: a process received SIGTERM or SIGINT; a complete checkpoint was
            written.
        DivergedRun: gradients stayed non-finite.
        ValueError: a checkpoint does not fit the model, the task does not compute what
            its `objective` names, or the first step raised it.
        RuntimeError: `max_failed_saves` checkpoints in a row could not be written, a
            callback ended the run, or something failed after the first step.
    """
    config = run.config
    with ExitStack() as stack:
        checkpoints = Checkpoints(
            run.workdir / CHECKPOINTS,
            config.keep_checkpoints,
            to_dict(config),
            run.workdir / "tokenizer",
            config.max_failed_saves,
            run.check_lock,
        )
        stack.callback(checkpoints.close)
        training = _TrainingRun(run, checkpoints, stack)
        try:
            return training.train()
        except BrokenPipeError:  # the reader of the output is gone, as for any command
            raise
        except (ValueError, OSError) as error:
            # Until the first step has ended, it is a user's mistake (exit code 2).
            if not training.has_trained():
                raise
            line = " ".join(str(error).split()).rstrip(".")
            raise RuntimeError(
                f"The run failed: {line}. Fix the cause and start the same command "
                "again; it resumes from its newest checkpoint."
            ) from error


P = ParamSpec("P")
ResultT = TypeVar("ResultT")


def announce_compilation(
    step: Callable[P, ResultT],
    what: str,
    announce: Callable[[str], contextlib.AbstractContextManager[object]],
) -> Callable[P, ResultT]:
    """Return `step`, which calls `announce` around its compilations.

    The last argument of the jitted `step` is a batch. Its first call with batches of a
    shape compiles it, or reads the program from the cache. `what` is its name in the
    message, such as "the training step".
    """
    compiled: set[tuple[tuple[int, ...], ...]] = set()

    def call(*args: P.args, **kwargs: P.kwargs) -> ResultT:
        batch = args[-1]
        assert isinstance(batch, dict)
        shapes = tuple(batch[name].shape for name in sorted(batch))
        if shapes in compiled:
            return step(*args, **kwargs)
        compiled.add(shapes)
        rows, *inner = max((array.shape for array in batch.values()), key=len)
        size = f"{rows} rows of {' × '.join(map(str, inner))}".removesuffix(" of ")
        with announce(f"compiling {what} for {size}"):
            return step(*args, **kwargs)

    return call
