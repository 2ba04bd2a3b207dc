"""Scores over the validation rows."""

import collections
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.distributed.mesh import to_global_arrays
from bert_jax.tasks.task import Batch, Task
from bert_jax.training.faults import StopRequested

_BATCHES_AHEAD = 2


def evaluate(
    task: Task,
    eval_step: Callable[[Any, dict[str, jax.Array]], Any],
    params: Any,
    mesh: Mesh,
    stop_signal: Callable[[], int] = lambda: 0,
) -> dict[str, float] | None:
    """Scores over the validation rows, each counted once; None where there are none.

    The sums stay on the devices until the last batch, so that no batch waits for the
    one before it.

    Args:
        stop_signal: asked before each batch; all processes get the same answer. A
            number other than 0 ends the evaluation.

    Raises:
        StopRequested: `stop_signal` said so.
    """
    sums: list[Any] = []
    outputs: list[Batch] = []
    ahead: collections.deque[Any] = collections.deque()
    for batch in task.evaluation_batches():
        if number := stop_signal():
            raise StopRequested(number)
        batch_sums, batch_outputs = eval_step(params, to_global_arrays(batch, mesh))
        sums.append(batch_sums)
        ahead.append(batch_outputs)
        if len(ahead) > _BATCHES_AHEAD:
            outputs.append(jax.device_get(ahead.popleft()))
    if not sums:
        return None
    outputs += jax.device_get(list(ahead))
    totals: dict[str, Any] = {}
    for batch_sums in jax.device_get(sums):
        for name, sum_and_count in batch_sums.items():
            totals[name] = totals.get(name, 0) + np.array(sum_and_count, np.float64)
    means = {name: total / max(count, 1.0) for name, (total, count) in totals.items()}
    loss = sum(means[name] for name in task.objective)
    floats = {"loss": float(loss)} | {k: float(v) for k, v in means.items()}
    return task.score(floats, outputs)
