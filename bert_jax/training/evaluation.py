"""Evaluation on the validation rows."""

import collections
from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.config.model import Params
from bert_jax.data.pipeline import Batch
from bert_jax.distributed.sharding import to_global_arrays
from bert_jax.tasks.task import DeviceBatch, Evaluation, Sums, Task
from bert_jax.training.faults import StopRequested
from bert_jax.training.step import EvalStep

_BATCHES_AHEAD = 2


def evaluate(
    task: Task,
    eval_step: EvalStep,
    params: Params,
    mesh: Mesh,
    stop_signal: Callable[[], int] = lambda: 0,
) -> dict[str, float] | None:
    """Return the scores over the validation rows, or None if there are none.

    Each row counts once. The sums stay on the devices until the last batch, so that
    batches need not wait for each other.

    Args:
        stop_signal: called before each batch; returns the same number on all processes.
            A number other than 0 ends the evaluation.

    Raises:
        StopRequested: `stop_signal` returned a number other than 0.
    """
    sums: list[Sums] = []
    outputs: list[Batch] = []
    pending_outputs: collections.deque[DeviceBatch] = collections.deque()
    for batch in task.evaluation_batches():
        if number := stop_signal():
            raise StopRequested(number)
        batch_sums, batch_outputs = eval_step(params, to_global_arrays(batch, mesh))
        sums.append(batch_sums)
        pending_outputs.append(batch_outputs)
        if len(pending_outputs) > _BATCHES_AHEAD:
            outputs.append(jax.device_get(pending_outputs.popleft()))
    if not sums:
        return None
    outputs += jax.device_get(list(pending_outputs))
    totals: dict[str, np.ndarray] = {}
    for batch_sums in jax.device_get(sums):
        for name, sum_and_count in batch_sums.items():
            totals[name] = totals.get(name, 0) + np.array(sum_and_count, np.float64)
    means = {name: total / max(count, 1.0) for name, (total, count) in totals.items()}
    loss = sum(means[name] for name in task.objective)
    floats = {"loss": float(loss)} | {k: float(v) for k, v in means.items()}
    return task.score(Evaluation(floats, outputs))
