"""The only training loop."""

import collections
import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import jax
import numpy as np
from etils import epath
from flax import serialization
from jax.sharding import Mesh

from bert_jax.checkpoint import Checkpoints
from bert_jax.config import RunConfig
from bert_jax.config_json import to_dict
from bert_jax.data.pipeline import stream
from bert_jax.flops import peak_flops_per_second
from bert_jax.processes import Poll, is_first, together
from bert_jax.sharding import place_of_host, to_global
from bert_jax.tasks.task import Task
from bert_jax.training.faults import (
    WRITE_FAILED,
    InterruptedRun,
    StopSignals,
    check_finite,
)
from bert_jax.training.profile import Profile
from bert_jax.training.report import Report, Silence
from bert_jax.training.start import Source, starting_state
from bert_jax.training.step import make_eval_step, make_train_step
from bert_jax.whole_steps import CHECKPOINTS

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
                work = task.tokens(batch), task.flops(batch)
                ahead.append((*work, to_global(batch, mesh)))
                if len(ahead) <= _BATCHES_AHEAD:
                    continue
            if not ahead:
                return
            tokens, flops, arrays = ahead.popleft()
            clock.tokens, clock.flops = clock.tokens + tokens, clock.flops + flops
            yield arrays


def evaluate(
    task: Task,
    eval_step: Callable[[Any, dict[str, jax.Array]], Any],
    params: Any,
    mesh: Mesh,
) -> dict[str, float] | None:
    """Scores over the validation rows, each counted once; None where there are none."""
    totals: dict[str, Any] = {}
    outputs = []
    for batch in task.evaluation_batches():
        sums, of_rows = jax.device_get(eval_step(params, to_global(batch, mesh)))
        outputs.append(of_rows)
        for name, sum_and_count in sums.items():
            totals[name] = totals.get(name, 0) + np.array(sum_and_count, np.float64)
    if not totals:
        return None
    means = {name: total / max(count, 1.0) for name, (total, count) in totals.items()}
    loss = sum(means[name] for name in task.objective)
    floats = {"loss": float(loss)} | {k: float(v) for k, v in means.items()}
    return task.score(floats, outputs)


def fit(
    task: Task,
    config: RunConfig,
    mesh: Mesh,
    workdir: epath.Path,
    tokenizer_directory: epath.Path,
    source: Source | None = None,
) -> dict[str, float]:
    """Train `task` to `config.num_steps` in `workdir`, from its newest checkpoint on.

    Args:
        source: what a new run takes its parameters from.

    Returns:
        The scores over the validation rows after the last step.

    Raises:
        InterruptedRun: SIGTERM or SIGINT came, to any process; a whole checkpoint was
            written.
        DivergedRun: gradients stayed non-finite.
        ValueError: a checkpoint does not fit the model.
        RuntimeError: a checkpoint could not be written.
    """
    checkpoints = Checkpoints(
        workdir / CHECKPOINTS,
        config.keep_checkpoints,
        to_dict(config),
        tokenizer_directory,
    )
    with ExitStack() as stack:
        stack.callback(checkpoints.close)
        state, shardings, problems = starting_state(
            task, config, mesh, checkpoints, source
        )
        step = first_step = int(state.step)
        report: Report | Silence = Silence()
        with together():
            if is_first():
                report = Report(workdir, step, config.num_steps, config.log_examples)
        stack.enter_context(report)
        for problem in problems:
            report.say(f"Passed over a newer checkpoint: {problem}")
        if step:
            report.say(f"Going on from the checkpoint at step {step}.")
        profile = stack.enter_context(Profile(config, workdir, step))
        train_step = profile.around(make_train_step(task, config, mesh, shardings))
        eval_step = make_eval_step(task, mesh, shardings)
        signals = stack.enter_context(StopSignals())
        poll = Poll()
        _, shares = place_of_host(mesh, jax.process_index())
        clock = Clock(mesh.size, shares)
        clock.restart()
        scores = None
        for batch in device_batches(task, step, config.num_steps, mesh, clock):
            state, scalars = train_step(state, batch)
            if step == first_step:
                # The first step is mostly compilation, and no measure of the rest.
                jax.block_until_ready(scalars)
                clock.restart()
            if config.log_examples:
                report.write_examples(step + 1, task.examples(step))
            step += 1
            last = step == config.num_steps
            if last or step % config.log_every == 0:
                values = {k: float(v) for k, v in jax.device_get(scalars).items()}
                check_finite(values["skipped_in_a_row"], step)
                report.write(step, "train", values | clock.rates())
                clock.restart()
            scores = None
            if last or step % config.eval_every == 0:
                scores = evaluate(task, eval_step, state.params, mesh)
                if scores is not None:
                    report.write(step, "validation", scores)
                clock.restart()
            # Read once: a signal that comes between the two would find no checkpoint.
            stop = poll.largest(
                signals.received or (WRITE_FAILED if checkpoints.failed else 0)
            )
            if last or stop or step % config.checkpoint_every == 0:
                report.flush()
                rest = serialization.to_state_dict(state)
                merit = None if scores is None else task.merit(scores)
                checkpoints.save(step, rest.pop("params"), rest, merit)
            if stop and not last:
                checkpoints.wait()
                raise InterruptedRun(stop, step)
        checkpoints.wait()
        if scores is None:
            scores = evaluate(task, eval_step, state.params, mesh)
        if scores is None:
            report.say("There are no validation rows to evaluate on.")
        return scores or {}
