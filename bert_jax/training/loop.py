"""The training loop of all tasks."""

import collections
import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import jax
from etils import epath
from flax import serialization
from jax.sharding import Mesh

from bert_jax.checkpoints.manager import Checkpoints
from bert_jax.checkpoints.steps import CHECKPOINTS
from bert_jax.config import RunConfig
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
from bert_jax.model.flops import peak_flops_per_second
from bert_jax.tasks.task import Task
from bert_jax.training.evaluation import evaluate
from bert_jax.training.faults import (
    RETRY_SAVE,
    InterruptedRun,
    StopRequested,
    StopSignals,
    check_finite,
    reraise_as_run_failure,
)
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.profile import Profile
from bert_jax.training.report import NullReport, Report
from bert_jax.training.resume import Resume
from bert_jax.training.start import InitSource, starting_state
from bert_jax.training.step import (
    check_objective,
    make_eval_step,
    make_train_step,
)
from bert_jax.training.watchdog import Watchdog

_BATCHES_AHEAD = 2


@dataclasses.dataclass
class Clock:
    """Measures the rates between two log lines."""

    num_devices: int
    num_shards: int
    """The number of host shards of a batch; only this host's tokens are counted."""
    start: float = 0.0
    tokens: int = 0
    flops: float = 0.0
    wait_seconds: float = 0.0

    def restart(self) -> None:
        """Start a new interval."""
        self.start = time.monotonic()
        self.tokens, self.flops, self.wait_seconds = 0, 0.0, 0.0

    def rates(self) -> dict[str, float]:
        """Return the tokens per second of all hosts, the fraction of time spent waiting
        for data, and the MFU if the device's peak is known."""
        if not self.tokens:
            return {}
        seconds = time.monotonic() - self.start
        rates = {
            "tokens_per_second": self.tokens * self.num_shards / seconds,
            "data_wait": self.wait_seconds / seconds,
        }
        peak = peak_flops_per_second(jax.devices()[0].device_kind)
        if peak is not None and self.flops:
            rates["mfu"] = self.flops / seconds / (peak * self.num_devices)
        return rates


def device_batches(
    task: Task, first_step: int, last_step: int, mesh: Mesh, clock: Clock
) -> Iterator[dict[str, jax.Array]]:
    """Yield the batches of a range of steps; two are transferred ahead of time."""
    queue: collections.deque[tuple[int, float, dict[str, jax.Array]]]
    queue = collections.deque()
    if first_step == last_step:
        return
    # For batches of several shapes, tf.data does not read ahead any better.
    with_tensorflow = None if task.one_shape else False
    reader = stream(task.batch, first_step, last_step, with_tensorflow)
    with closing(reader) as batches:
        while True:
            start = time.monotonic()
            batch = next(batches, None)
            clock.wait_seconds += time.monotonic() - start
            if batch is not None:
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


def fit(
    task: Task,
    config: RunConfig,
    mesh: Mesh,
    workdir: epath.Path,
    tokenizer_directory: epath.Path,
    source: InitSource | None = None,
    resume: Resume | None = None,
    check_lock: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Train `task` in `workdir` up to `config.num_steps`.

    Args:
        source: where a new run takes its parameters from.
        resume: the run's latest verified checkpoint; None for a new run.
        check_lock: raises RuntimeError if another run has taken the workdir's lock.

    Returns:
        The scores over the validation rows after the last step.

    Raises:
        InterruptedRun: a process received SIGTERM or SIGINT; a complete checkpoint was
            written.
        DivergedRun: gradients stayed non-finite.
        ValueError: a checkpoint does not fit the model, the task does not compute what
            its `objective` names, or the first step raised it.
        RuntimeError: `max_failed_saves` checkpoints in a row could not be written, or
            something failed after the first step.
    """
    optimizer = Optimizer.of(config)
    with ExitStack() as stack:
        # Open what the run needs; the stack closes it in reverse order.
        checkpoints = Checkpoints(
            workdir / CHECKPOINTS,
            config.keep_checkpoints,
            to_dict(config),
            tokenizer_directory,
            config.max_failed_saves,
            check_lock,
        )
        stack.callback(checkpoints.close)
        state, shardings = starting_state(
            task, optimizer, config, mesh, checkpoints, source, resume
        )
        step = first_step = int(state.step)
        assert step >= getattr(getattr(config, "data", None), "first_step", 0)
        report: Report | NullReport = NullReport()
        with raise_on_all_processes():
            if is_primary():
                report = Report(workdir, step, config.num_steps, config.log_examples)
        stack.enter_context(report)
        for problem in resume.problems if resume else ():
            report.say(f"Skipped a newer checkpoint: {problem}")
        if step:
            report.say(f"Resuming from the checkpoint at step {step}.")
        profile = stack.enter_context(Profile(config, workdir, step))
        train_step = profile.wrap(
            make_train_step(task, optimizer, config.microbatches, mesh, shardings)
        )
        eval_step = make_eval_step(task, mesh, shardings)
        signals = stack.enter_context(StopSignals())
        watchdog = stack.enter_context(Watchdog(config.hang_timeout_minutes))
        async_max = AsyncMax()
        _, num_shards = host_shard(mesh, jax.process_index())
        clock = Clock(mesh.size, num_shards)

        def stop_signal() -> int:
            """Return a stop signal that any process received, or 0; a collective."""
            watchdog.beat()
            number = async_max.all_reduce(signals.received or 0)
            return number if number > RETRY_SAVE else 0

        def validate() -> dict[str, float] | None:
            """Evaluate; write the scores, and record the checkpoint's score."""
            scores = evaluate(task, eval_step, state.params, mesh, stop_signal)
            if scores is not None:
                report.write(step, "validation", scores)
                checkpoints.record_score(step, task.selection_score(scores))
            clock.restart()
            return scores

        def is_due(every: int) -> bool:
            return step == config.num_steps or step % every == 0

        def save(must_succeed: bool = False) -> bool:
            """Start a save; return false, without one, if the update was skipped."""
            if int(state.skipped_in_a_row) and step < config.num_steps:
                report.say(f"No checkpoint at step {step}: its update was skipped.")
                return False
            rest = serialization.to_state_dict(state)
            write = checkpoints.save_or_raise if must_succeed else checkpoints.save
            write(step, rest.pop("params"), rest, report.flush)
            for message in checkpoints.take_messages():
                report.say(message)
            return True

        saved_step = resume.step if resume else None
        scores = None
        # Until the first step has ended, a ValueError is a user's mistake.
        with reraise_as_run_failure(lambda: step > first_step):
            try:
                if step < config.num_steps:
                    check_objective(task, state.params, task.batch(step))
                if resume and is_due(config.eval_every):
                    # A run that was stopped after a save may not have evaluated it.
                    scores = broadcast_from_primary(report.scores(step)) or validate()
                clock.restart()
                for batch in device_batches(task, step, config.num_steps, mesh, clock):
                    state, scalars = train_step(state, batch)
                    if step == first_step:
                        # Compilation takes most of the first step: do not measure it.
                        jax.block_until_ready(scalars)
                        clock.restart()
                    watchdog.beat()
                    if config.log_examples:
                        report.write_examples(step + 1, task.row_numbers(step))
                    step += 1
                    if is_due(config.log_every):
                        values = {
                            k: float(v) for k, v in jax.device_get(scalars).items()
                        }
                        check_finite(values["skipped_in_a_row"], step)
                        report.write(step, "train", values | clock.rates())
                        clock.restart()
                    # Poll only once per step: a signal that arrived between two polls
                    # would stop the run without a checkpoint.
                    request = async_max.all_reduce(
                        signals.received or RETRY_SAVE * checkpoints.retry_due
                    )
                    if request or is_due(config.checkpoint_every):
                        saved_step = step if save() else saved_step
                    if request > RETRY_SAVE and step < config.num_steps:
                        raise StopRequested(request)
                    if is_due(config.eval_every):
                        scores = validate()
                # The last save must have succeeded.
                if not checkpoints.wait():
                    save(must_succeed=True)
            except StopRequested as stop:
                # A step without a complete checkpoint is saved now.
                if saved_step != step or not checkpoints.wait():
                    saved_step = step if save(must_succeed=True) else saved_step
                raise InterruptedRun(
                    stop.signal_number, step, saved_step == step
                ) from None
        if scores is None:
            report.say("There are no validation rows to evaluate on.")
        return scores or {}
