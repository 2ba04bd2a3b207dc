"""Evaluation on the validation rows."""

from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.config.model import Params
from bert_jax.distributed.sharding import to_global_arrays
from bert_jax.tasks.task import Evaluation, Sums, Task
from bert_jax.training.faults import StopRequested
from bert_jax.training.interval import means_of_totals
from bert_jax.training.step import EvalStep

_LATE = slice(-3, -2)
"""The outputs to fetch after a step: those of two batches ago, or none."""


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
    outputs = []
    for batch in task.evaluation_batches():
        if number := stop_signal():
            raise StopRequested(number)
        batch_sums, batch_outputs = eval_step(params, to_global_arrays(batch, mesh))
        sums.append(batch_sums)
        outputs.append(batch_outputs)
        outputs[_LATE] = jax.device_get(outputs[_LATE])
    if not sums:
        return None
    totals: dict[str, np.ndarray] = {}
    for batch_sums in jax.device_get(sums):
        for name, sum_and_count in batch_sums.items():
            totals[name] = totals.get(name, 0) + np.array(sum_and_count, np.float64)
    pairs = {k: (float(total), float(count)) for k, (total, count) in totals.items()}
    floats = means_of_totals(pairs, task.objective, task.weights)
    return task.score(Evaluation(floats, jax.device_get(outputs)))
