"""Compile one training step in a process of its own: memory is freed, a crash is seen.

It reads a job as a line of JSON from standard input, writes its figures to the job's
file, and ends if standard input does, because the process that started it has ended.
"""

import dataclasses
import json
import os
import sys
import threading
import traceback
from pathlib import Path

import numpy as np

from bert_jax.apps.benchmark.compilation import compile_step
from bert_jax.apps.benchmark.figures import Figures, peak_memory_mib
from bert_jax.apps.benchmark.steps import synthetic_dataset
from bert_jax.config import PretrainConfig
from bert_jax.config.serialization import from_dict
from bert_jax.distributed.topologies import parse_topology
from bert_jax.runs.kernel_schedule import end_with_input
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.terminal.messages import one_line


def read_figures(path: Path) -> Figures | None:
    """Return the figures of a JSON file; None if there is no complete one."""
    try:
        figures: Figures = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return figures


def compile_config(
    config: PretrainConfig, topology: str, kept: Figures | None
) -> Figures:
    """Compile the step of a configuration that no dataset has to complete.

    Args:
        kept: as in `compile_step`.
    """
    dataset = synthetic_dataset(config, num_rows=1)
    one_row = dataclasses.replace(config, batch_size=1, microbatches=1)
    sample = PretrainingTask(one_row, dataset).batch(config.data.first_step)
    # Zeros take no memory until they are read, and here only their shapes are.
    batch = {
        name: np.zeros((config.batch_size, *values.shape[1:]), values.dtype)
        for name, values in sample.items()
    }
    task = PretrainingTask(config, dataset)
    return compile_step(config, task, batch, parse_topology(topology), kept)


def main() -> None:
    """Compile the job of standard input; its file appears when it is complete.

    Where that fails, the last line of standard error is the reason.
    """
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_input, daemon=True).start()
    path = Path(job["file"])
    try:
        config = from_dict(PretrainConfig, job["config"])
        figures = compile_config(config, job["topology"], read_figures(path))
    except Exception as error:
        traceback.print_exc()
        sys.exit(f"{type(error).__name__}: {one_line(error)}")
    figures = {"peak_memory_mib": peak_memory_mib()} | figures
    figures["fingerprint"] = job["fingerprint"]
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(figures, indent=2))
    os.replace(unfinished, path)


if __name__ == "__main__":
    main()
