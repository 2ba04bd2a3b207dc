"""A run that is killed and started again, over and over, is the run never stopped."""

import collections
import random
from collections.abc import Callable
from pathlib import Path

import moments
import pytest
from run_helpers import (
    assert_same_run,
    latest_verified_step,
    logged_lines,
    write_config,
)
from runs import AS_USERS_HAVE_THEM, run, saves_often, started

from bert_jax.config import PretrainConfig

COUNTS = [
    pytest.param(7, 12, 1, marks=pytest.mark.slow),
    *(pytest.param(seed, 60, 25, marks=pytest.mark.reliability) for seed in range(4)),
]


def check_killed(workdir: Path, before: int) -> int:
    """What is on disk after a kill: nothing was lost that was there before.

    Returns:
        The newest whole step.
    """
    step = latest_verified_step(workdir)
    assert step >= before
    logged = [line["step"] for line in logged_lines(workdir, "train")]
    assert logged[:step] == list(range(1, step + 1)), "a checkpoint without its lines"
    return step


def chain(
    arguments: list[str],
    workdir: Path,
    kills: int,
    dice: random.Random,
    compiled: dict[str, str],
) -> tuple[list[str], bool]:
    """Kill a run at random moments, `kills` times or until it reaches its end.

    Returns:
        What each kill hit, and whether the run has ended.
    """
    hits: list[str] = []
    whole = 0
    while len(hits) < kills:
        log = workdir.with_name(f"{workdir.name}_{len(hits)}")
        with started([*arguments, str(workdir)], log, **compiled) as process:
            moment = dice.choice(moments.ALL)
            there = moment(moments.Watch(process, workdir, dice))
            process.kill()
            code = process.code()
        if not there and code != 137:
            assert code == 0, (moment, process.stderr()[-2000:])
            return hits, True
        if whole and "Resuming" in process.stdout():
            assert f"Resuming from the checkpoint at step {whole}." in process.stdout()
        hits.append(moments.state_of(workdir))
        whole = check_killed(workdir, whole)
    return hits, False


@pytest.mark.parametrize(("seed", "num_steps", "kills"), COUNTS)
def test_killed_at_random_moments(
    seed: int,
    num_steps: int,
    kills: int,
    small_config: PretrainConfig,
    tmp_path: Path,
    record_row: Callable[..., None],
):
    file = write_config(saves_often(small_config, num_steps), tmp_path / "config.py")
    never_stopped = tmp_path / "never_stopped"
    arguments = ["pretrain", str(file), "--workdir"]
    compiled = {} if num_steps < 60 else AS_USERS_HAVE_THEM
    run([*arguments, str(never_stopped)], tmp_path / "never", **compiled)
    dice = random.Random(seed)
    hits: list[str] = []
    while len(hits) < kills:
        workdir = tmp_path / f"killed_{len(hits)}"
        left = kills - len(hits)
        found, ended = chain(arguments, workdir, left, dice, compiled)
        hits += found
        if not ended:
            run([*arguments, str(workdir)], tmp_path / "end", **compiled)
        assert_same_run(workdir, never_stopped)
    counts = collections.Counter(hits)
    told = ", ".join(f"{number} {what}" for what, number in counts.most_common())
    record_row("SIGKILL, one process", kills, "bit-identical", told)
