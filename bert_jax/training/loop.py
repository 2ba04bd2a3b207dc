"""The only training loop."""

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
    Poll,
    broadcast_from_primary,
    is_primary,
    raise_on_all_processes,
)
from bert_jax.distributed.mesh import host_shard, to_global_arrays
from bert_jax.model.flops import peak_flops_per_second
from bert_jax.tasks.task import Task
from bert_jax.training.evaluation import evaluate
from bert_jax.training.faults import (
    SAVE_AGAIN,
    InterruptedRun,
    StopRequested,
    StopSignals,
    check_finite,
    failures_in_the_loop,
)
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.profile import Profile
from bert_jax.training.report import NullReport, Report
from bert_jax.training.resume import Resume
from bert_jax.training.start import InitSource, starting_state
from bert_jax.training.step import make_eval_step, make_train_step
from bert_jax.training.watchdog import Watchdog

_BATCHES_AHEAD = 2


@dataclasses.dataclass
class Clock:
    """Rates between two log lines."""

    devices: int
    shares: int
    """Parts of a batch that hosts read, of which this one's tokens are counted."""
    start: float = 0.0
    tokens: int = 0
    flops: float = 0.0
    waited: float = 0.0

    def restart(self) -> None:
        """Begin a new interval now."""
        self.start = time.monotonic()
        self.tokens, self.flops, self.waited = 0, 0.0, 0.0

    def rates(self) -> dict[str, float]:
        """Real tokens a second of all hosts, share of waiting, MFU where known."""
        if not self.tokens:
            return {}
        seconds = time.monotonic() - self.start
        rates = {
            "tokens_per_second": self.tokens * self.shares / seconds,
            "data_wait": self.waited / seconds,
        }
        peak = peak_flops_per_second(jax.devices()[0].device_kind)
        if peak is not None:
            rates["mfu"] = self.flops / seconds / (peak * self.devices)
        return rates


def device_batches(
    task: Task, first_step: int, last_step: int, mesh: Mesh, clock: Clock
) -> Iterator[dict[str, jax.Array]]:
    """The batches of a range of steps, two of them on their way to the devices."""
    ahead: collections.deque[tuple[int, float, dict[str, jax.Array]]]
    ahead = collections.deque()
    if first_step == last_step:
        return
    # tf.data would take batches of many shapes as well, but reads ahead no better.
    with_tensorflow = None if task.one_shape else False
    reading = stream(task.batch, first_step, last_step, with_tensorflow)
    with closing(reading) as batches:
        while True:
            start = time.monotonic()
            batch = next(batches, None)
            clock.waited += time.monotonic() - start
            if batch is not None:
                work = task.num_tokens(batch), task.flops(batch)
                ahead.append((*work, to_global_arrays(batch, mesh)))
                if len(ahead) <= _BATCHES_AHEAD:
                    continue
            if not ahead:
                return
            tokens, flops, arrays = ahead.popleft()
            clock.tokens, clock.flops = clock.tokens + tokens, clock.flops + flops
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
    """Train `task` to `config.num_steps` in `workdir`, from its newest checkpoint on.

    Args:
        source: what a new run takes its parameters from.
        resume: the run's own newest whole checkpoint; None: it is a new run.
        check_lock: raises RuntimeError where another run has taken the workdir over.

    Returns:
        The scores over the validation rows after the last step.

    Raises:
        InterruptedRun: SIGTERM or SIGINT came, to any process; a whole checkpoint was
            written.
        DivergedRun: gradients stayed non-finite.
        ValueError: a checkpoint does not fit the model; or as the first step raises.
        RuntimeError: `max_failed_saves` checkpoints in a row could not be written, or
            what failed after the first step.
    """
    optimizer = Optimizer.of(config)
    with ExitStack() as stack:
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
            report.say(f"Passed over a newer checkpoint: {problem}")
        if step:
            report.say(f"Going on from the checkpoint at step {step}.")
        profile = stack.enter_context(Profile(config, workdir, step))
        train_step = profile.around(
            make_train_step(task, optimizer, config.microbatches, mesh, shardings)
        )
        eval_step = make_eval_step(task, mesh, shardings)
        signals = stack.enter_context(StopSignals())
        watchdog = stack.enter_context(Watchdog(config.hang_timeout_minutes))
        poll = Poll()
        _, shares = host_shard(mesh, jax.process_index())
        clock = Clock(mesh.size, shares)

        def stop_signal() -> int:
            """A signal that any process has received; asked by all together."""
            watchdog.beat()
            found = poll.largest(signals.received or 0)
            return found if found > SAVE_AGAIN else 0

        def validate() -> dict[str, float] | None:
            """Evaluate, write the scores, and note them of the checkpoint."""
            scores = evaluate(task, eval_step, state.params, mesh, stop_signal)
            if scores is not None:
                report.write(step, "validation", scores)
                checkpoints.record_score(step, task.selection_score(scores))
            clock.restart()
            return scores

        def is_due(now: int, every: int) -> bool:
            return now == config.num_steps or now % every == 0

        def save(surely: bool = False) -> bool:
            """Whether a checkpoint is on its way; none is while updates are skipped."""
            if int(state.skipped_in_a_row) and step < config.num_steps:
                report.say(f"No checkpoint at step {step}: its update was left out.")
                return False
            rest = serialization.to_state_dict(state)
            write = checkpoints.save_or_raise if surely else checkpoints.save
            write(step, rest.pop("params"), rest, report.flush)
            for notice in checkpoints.take_messages():
                report.say(notice)
            return True

        saved_at = resume.step if resume else None
        scores = None
        with failures_in_the_loop(lambda: step > first_step):
            try:
                if resume and is_due(step, config.eval_every):
                    # None where it was stopped between its checkpoint and its scores.
                    scores = broadcast_from_primary(report.scores(step)) or validate()
                clock.restart()
                for batch in device_batches(task, step, config.num_steps, mesh, clock):
                    state, scalars = train_step(state, batch)
                    if step == first_step:
                        # The first step is mostly compilation, no measure of the rest.
                        jax.block_until_ready(scalars)
                        clock.restart()
                    watchdog.beat()
                    if config.log_examples:
                        report.write_examples(step + 1, task.row_numbers(step))
                    step += 1
                    if is_due(step, config.log_every):
                        values = {
                            k: float(v) for k, v in jax.device_get(scalars).items()
                        }
                        check_finite(values["skipped_in_a_row"], step)
                        report.write(step, "train", values | clock.rates())
                        clock.restart()
                    # Read once: a signal between two readings would find no checkpoint.
                    asked = poll.largest(
                        signals.received or SAVE_AGAIN * checkpoints.retry_due
                    )
                    if asked or is_due(step, config.checkpoint_every):
                        saved_at = step if save() else saved_at
                    if asked > SAVE_AGAIN and step < config.num_steps:
                        raise StopRequested(asked)
                    if is_due(step, config.eval_every):
                        scores = validate()
                if not checkpoints.wait():
                    save(surely=True)
            except StopRequested as stop:
                if saved_at != step or not checkpoints.wait():
                    saved_at = step if save(surely=True) else saved_at
                raise InterruptedRun(
                    stop.signal_number, step, saved_at == step
                ) from None
        if scores is None:
            report.say("There are no validation rows to evaluate on.")
        return scores or {}
