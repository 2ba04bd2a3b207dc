"""A long run with saves and evaluations: memory, threads and open files stay flat."""

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from runs import (
    NO_TENSORFLOW,
    Process,
    environment,
    lines,
    logged_steps,
    saves_often,
    started,
    write_config,
)

from bert_jax.config import PretrainConfig

LOG_EVERY = 20
MIB = 1 << 20
TOLERANCE = {"memory": 8 * MIB, "threads": 0, "files": 2}
"""By how much the medians may grow. Steps and evaluations were flat to 1.5 MiB, and a
save leaves about 0.1 MB behind in Orbax: between the middles of the two quarters lie 25
saves and, of the long run, ten thousand steps, so that 840 bytes a step would show. A
save may be under way in one median and not in the other: two files."""


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


def samples_of(
    process: Process, workdir: Path, pause: float
) -> list[tuple[int, dict[str, int]]]:
    """The step and a sample, again and again until the process ends."""
    found = []
    while not process.ended:
        try:
            found.append((LOG_EVERY * logged_steps(workdir), sample(process.child.pid)))
        except (FileNotFoundError, KeyError):  # it has just ended
            break
        time.sleep(pause)
    return found


def growth(
    samples: list[tuple[int, dict[str, int]]], num_steps: int
) -> dict[str, float]:
    """By how much the medians of the last quarter exceed those of the second."""
    quarters = [
        [values for step, values in samples if first <= step / num_steps < last]
        for first, last in ((0.25, 0.5), (0.75, 1.0))
    ]
    assert all(len(quarter) >= 5 for quarter in quarters), "too few samples"
    before, after = (
        {name: float(np.median([s[name] for s in quarter])) for name in TOLERANCE}
        for quarter in quarters
    )
    return {name: after[name] - before[name] for name in TOLERANCE}


@pytest.mark.parametrize(
    ("num_steps", "tensorflow"),
    [
        # Orbax's pools of threads are not yet full: too short to say of every run.
        pytest.param(600, False, marks=pytest.mark.reliability),
        pytest.param(20_000, True, marks=pytest.mark.reliability),
    ],
)
def test_nothing_grows_in_a_long_run(
    num_steps: int,
    tensorflow: bool,
    small_config: PretrainConfig,
    tmp_path: Path,
    record_row: Callable[..., None],
):
    """The whole count reads by TensorFlow, as runs do where it is installed."""
    every = num_steps // 50
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
        samples = samples_of(process, workdir, num_steps / 20_000)
        assert process.code() == 0, process.complained()[-2000:]
    assert lines(workdir)[-1]["step"] == num_steps
    grown = growth(samples, num_steps)
    told = f"{grown['memory'] / MIB:+.1f} MiB, {grown['threads']:+.0f} threads, "
    told += f"{grown['files']:+.0f} files"
    for name, most in TOLERANCE.items():
        assert grown[name] <= most, told
    record_row(f"{num_steps:,} steps", len(samples), "nothing grows", told)
