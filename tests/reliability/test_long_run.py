"""A long run with saves and evaluations: memory, threads and open files stay flat."""

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from run_helpers import NO_TENSORFLOW, logged_lines, write_config
from runs import Process, environment, logged_steps, saves_often, started

from bert_jax.config import PretrainConfig

LOG_EVERY = 10
MIB = 1 << 20
MOST_THREADS = MOST_FILES = 5
"""By how many their least may grow from the second quarter of a run to the last. While
a save is under way there are up to 13 threads and 22 files more; the least is what
stays between saves. One left behind by each save would be 10, and 25."""


def sample(pid: int) -> dict[str, int]:
    """Resident bytes, threads and open files of a process."""
    status = dict(
        line.split(":", 1)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return {
        "memory": int(status["VmRSS"].split()[0]) << 10,
        "threads": int(status["Threads"]),
        "files": len(os.listdir(f"/proc/{pid}/fd")),
    }


def samples_of(process: Process, workdir: Path) -> list[tuple[int, dict[str, int]]]:
    """The step and a sample, again and again until the process ends."""
    found = []
    while not process.ended:
        try:
            found.append((LOG_EVERY * logged_steps(workdir), sample(process.child.pid)))
        except (FileNotFoundError, KeyError):  # it has just ended
            break
        time.sleep(0.05)
    return found


def growth(
    samples: list[tuple[int, dict[str, int]]], num_steps: int
) -> dict[str, float]:
    """How much more there is in the last quarter of a run than in the second.

    Of memory the median of each; of threads and files the least, as between saves.
    """
    quarters = [
        [values for step, values in samples if first <= step / num_steps < last]
        for first, last in ((0.25, 0.5), (0.75, 1.0))
    ]
    assert all(len(quarter) >= 5 for quarter in quarters), "too few samples"
    statistics = {"memory": np.median, "threads": np.min, "files": np.min}
    before, after = (
        {name: float(of([s[name] for s in quarter])) for name, of in statistics.items()}
        for quarter in quarters
    )
    return {name: after[name] - before[name] for name in statistics}


@pytest.mark.parametrize(
    ("num_steps", "num_saves", "tensorflow", "most_memory"),
    [
        # Allocators still settle in the first hundreds of steps.
        pytest.param(120, 20, False, 32 * MIB, marks=pytest.mark.slow),
        # Steps, lines and batches alone: 200 bytes a step would show.
        pytest.param(20_000, 1, True, 2 * MIB, marks=pytest.mark.reliability),
        # Orbax and TensorStore keep 0.1 to 0.4 MB of each save, whatever the size of
        # the model, and 25 saves lie between the middles of the two quarters.
        pytest.param(20_000, 50, True, 16 * MIB, marks=pytest.mark.reliability),
    ],
)
def test_nothing_grows_in_a_long_run(
    num_steps: int,
    num_saves: int,
    tensorflow: bool,
    most_memory: int,
    small_config: PretrainConfig,
    tmp_path: Path,
    record_row: Callable[..., None],
):
    """The whole count reads by TensorFlow, as runs do where it is installed."""
    every = num_steps // num_saves
    config = dataclasses.replace(
        saves_often(small_config, 60),
        optimizer=dataclasses.replace(
            small_config.optimizer, warmup_steps=2, decay_steps=20_000
        ),
        num_steps=num_steps,
        log_every=LOG_EVERY,
        eval_every=every,
        checkpoint_every=every,
    )
    file = write_config(config, tmp_path / "config.py")
    command, workdir = ["pretrain", str(file), "--workdir"], tmp_path / "run"
    paths = environment()["PYTHONPATH"].split(os.pathsep)
    if tensorflow:
        paths.remove(str(NO_TENSORFLOW))
    with started(
        [*command, str(workdir)], tmp_path / "log", PYTHONPATH=os.pathsep.join(paths)
    ) as process:
        samples = samples_of(process, workdir)
        assert process.code() == 0, process.stderr()[-2000:]
    assert logged_lines(workdir)[-1]["step"] == num_steps
    grown = growth(samples, num_steps)
    told = f"{grown['memory'] / MIB:+.1f} MiB, {grown['threads']:+.0f} threads, "
    told += f"{grown['files']:+.0f} files"
    assert grown["memory"] <= most_memory, told
    assert grown["threads"] <= MOST_THREADS, told
    assert grown["files"] <= MOST_FILES, told
    record_row(f"{num_steps:,} steps, saved every {every:,}", 1, "nothing grows", told)
