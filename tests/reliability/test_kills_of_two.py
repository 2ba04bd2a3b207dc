"""The same with two processes of one run, of which either is killed."""

import dataclasses
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import moments
import pytest
from run_helpers import (
    assert_same_run,
    latest_verified_step,
    logged_lines,
    write_config,
)
from runs import Process, saves_often, started

from bert_jax.config import MeshConfig, PretrainConfig

PATIENCE = 3
"""Seconds that a launcher here waits for the other process to notice."""
MEETING = 100
"""Seconds within which the two must have met: where one is killed before, the other
waits for it no longer."""
HEARTBEAT = 150
"""Seconds after which the other process must have noticed by itself: 100 without a
sign of life, and what the runtime takes to look and to end."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def both(arguments: list[str], log: Path) -> Iterator[list[Process]]:
    """Two processes of one run, one device each."""
    address = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                started(
                    arguments,
                    log.with_name(f"{log.name}_{rank}"),
                    BERT_JAX_COORDINATOR=address,
                    BERT_JAX_NUM_PROCESSES="2",
                    BERT_JAX_PROCESS_ID=str(rank),
                )
            )
            for rank in range(2)
        ]


def run_both(arguments: list[str], log: Path) -> None:
    """Two processes that both reach the end."""
    with both(arguments, log) as processes:
        for process in processes:
            assert process.code(300) == 0, process.stderr()[-2000:]


def end(process: Process, seconds: float) -> bool:
    """Whether it ended by itself in time; it is killed otherwise, as launchers do."""
    deadline = time.monotonic() + seconds
    while not process.ended and time.monotonic() < deadline:
        time.sleep(0.05)
    by_itself = process.ended
    process.kill()
    process.code()
    return by_itself


def kill_one(
    arguments: list[str], workdir: Path, dice: random.Random, patience: float
) -> tuple[bool, bool]:
    """Start both, and kill one at a random moment.

    Returns:
        Whether it was there to be killed, and the other ended by itself.
    """
    victim = dice.randrange(2)
    log = workdir.with_name(f"{workdir.name}_{dice.randrange(10**9)}")
    with both([*arguments, str(workdir)], log) as processes:
        watch = moments.Watch(processes[0], workdir, dice)
        there = dice.choice(moments.ALL)(watch)
        processes[victim].kill()
        if processes[victim].code() != 137:
            for process in processes:
                assert process.code(300) == 0, process.stderr()[-2000:]
            return False, False
        noticed = end(processes[1 - victim], patience)
    assert there or processes[1 - victim].code() != 0
    return True, noticed


@pytest.mark.parametrize(
    ("seed", "num_steps", "kills"),
    [pytest.param(seed, 30, 10, marks=pytest.mark.reliability) for seed in range(2)],
)
def test_either_of_two_processes_is_killed(
    seed: int,
    num_steps: int,
    kills: int,
    small_config: PretrainConfig,
    tmp_path: Path,
    record_row: Callable[..., None],
):
    config = saves_often(small_config, num_steps)
    config = dataclasses.replace(config, mesh=MeshConfig())
    file = write_config(config, tmp_path / "config.py")
    arguments = ["pretrain", str(file), "--initialization-timeout", str(MEETING)]
    arguments.append("--workdir")
    never_stopped = tmp_path / "never_stopped"
    run_both([*arguments, str(never_stopped)], tmp_path / "never")
    dice = random.Random(seed)
    killed = noticed = begun = 0
    while killed < kills:
        workdir = tmp_path / f"killed_{begun}"
        patience = HEARTBEAT if killed == kills - 1 else PATIENCE
        whole = latest_verified_step(workdir)
        there, by_itself = kill_one(arguments, workdir, dice, patience)
        assert latest_verified_step(workdir) >= whole
        if not there:
            assert_same_run(workdir, never_stopped)
            begun += 1
            continue
        killed, noticed = killed + 1, noticed + by_itself
    assert by_itself, f"the other process did not end within {HEARTBEAT} seconds"
    run_both([*arguments, str(workdir)], tmp_path / "end")
    assert_same_run(workdir, never_stopped)
    assert logged_lines(workdir, name="examples.jsonl")
    told = f"{noticed} times the other ended by itself"
    record_row("SIGKILL, one of two processes", kills, "bit-identical", told)
