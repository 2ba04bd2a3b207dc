"""Two runs at once in one workdir, the lock of a killed one, and a rank that hangs."""

import dataclasses
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from run_helpers import assert_same_run, latest_verified_step, write_config
from runs import Process, run, saves_often, started, wait_for_steps, wait_until
from test_kills_of_two import both, run_both

from bert_jax.config import MeshConfig, PretrainConfig

RunOf = Callable[[int], list[str]]


@pytest.fixture
def run_of(small_config: PretrainConfig, tmp_path: Path) -> RunOf:
    """The command, but for its workdir, of a run of so many steps."""

    def arguments(num_steps: int) -> list[str]:
        config = saves_often(small_config, num_steps)
        file = write_config(config, tmp_path / f"steps_{num_steps}.py")
        return ["pretrain", str(file), "--workdir"]

    return arguments


def check_second(process: Process, first: Process, workdir: Path) -> None:
    """It ended at once, with one line that names the workdir and the first process."""
    assert process.code() == 2, process.stderr()
    error = process.stderr()
    assert error.startswith("bert-jax: ") and error.count("\n") == 1, error
    assert str(workdir) in error and str(first.child.pid) in error, error


@pytest.mark.reliability
@pytest.mark.parametrize("num_steps", [12, 60])
def test_A5_the_second_of_two_runs_ends_and_the_first_goes_on(
    num_steps: int,
    run_of: RunOf,
    tmp_path: Path,
    record_row: Callable[..., None],
):
    command, workdir = run_of(num_steps), tmp_path / "run"
    with started([*command, str(workdir)], tmp_path / "first") as first:
        assert wait_until((workdir / "config.json").exists, first)
        first.kill(signal.SIGSTOP)  # it must still be there when the second looks
        with started([*command, str(workdir)], tmp_path / "second") as second:
            check_second(second, first, workdir)
        first.kill(signal.SIGCONT)
        assert first.code() == 0, first.stderr()
    if num_steps > 12:
        run([*command, str(tmp_path / "alone")], tmp_path / "alone")
        assert_same_run(workdir, tmp_path / "alone")
    record_row("two runs in one workdir", 1, "the second ends, code 2", "so")


@pytest.mark.reliability
def test_A5_of_two_runs_started_at_once_one_ends(
    run_of: RunOf, tmp_path: Path, record_row: Callable[..., None]
):
    command, rounds = run_of(12), 5
    run([*command, str(tmp_path / "alone")], tmp_path / "alone")
    for number in range(rounds):
        workdir = tmp_path / f"run_{number}"
        logs = tmp_path / f"first_{number}", tmp_path / f"second_{number}"
        with (
            started([*command, str(workdir)], logs[0]) as first,
            started([*command, str(workdir)], logs[1]) as second,
        ):
            codes = {first.code(): first, second.code(): second}
            assert sorted(codes) == [0, 2], [first.stderr(), second.stderr()]
            check_second(codes[2], codes[0], workdir)
        assert_same_run(workdir, tmp_path / "alone")
    record_row("two runs in one workdir", rounds, "the second ends, code 2", "so")


@pytest.mark.reliability
def test_A5_the_lock_of_a_killed_run_is_taken_over(
    run_of: RunOf, tmp_path: Path, record_row: Callable[..., None]
):
    command, rounds = run_of(12), 3
    for number in range(rounds):
        workdir = tmp_path / f"run_{number}"
        with started([*command, str(workdir)], tmp_path / f"first_{number}") as first:
            assert wait_for_steps(workdir, 1 + 4 * number, first)
            first.kill()
            first.code()
        start = time.monotonic()
        with started([*command, str(workdir)], tmp_path / f"next_{number}") as process:
            assert process.code() == 0, process.stderr()
        assert "Waiting" not in process.stdout(), time.monotonic() - start
        assert latest_verified_step(workdir) == 12
    record_row("lock of a killed run", rounds, "taken over", "so")


@pytest.mark.reliability
@pytest.mark.parametrize("rank", [0, 1])
def test_A9_a_hung_rank_is_noticed(
    rank: int,
    small_config: PretrainConfig,
    tmp_path: Path,
    record_row: Callable[..., None],
):
    """A stopped process; the other aborts within its time, and both start again."""
    minutes = 0.1
    config = dataclasses.replace(
        saves_often(small_config, 60),
        mesh=MeshConfig(),
        hang_timeout_minutes=minutes,
    )
    file = write_config(config, tmp_path / "config.py")
    command, workdir = ["pretrain", str(file), "--workdir"], tmp_path / "run"
    with both([*command, str(workdir)], tmp_path / "hung") as processes:
        hung, other = processes[rank], processes[1 - rank]
        assert wait_for_steps(workdir, 5, other)
        hung.kill(signal.SIGSTOP)
        start = time.monotonic()
        assert other.code(60 * minutes + 30) == 134, other.stderr()[-2000:]
        seconds = time.monotonic() - start
        assert seconds < 60 * minutes + 20
        error = other.stderr()
        assert "hang_timeout_minutes" in error and "most recent call first" in error
    # Compiling the first evaluation may take longer than that.
    command = [*command[:2], "--hang-timeout-minutes", "10", "--workdir"]
    run_both([*command, str(workdir)], tmp_path / "again")
    run_both([*command, str(tmp_path / "alone")], tmp_path / "alone")
    assert_same_run(workdir, tmp_path / "alone")
    bar = f"aborts after {60 * minutes:.0f} s, then bit-identical"
    record_row("a hung rank", 1, bar, f"{seconds:.0f} s")
