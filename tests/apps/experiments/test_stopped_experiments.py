"""Experiments as processes: killed on the way, and two of them together."""

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from run_helpers import flags_for_one_device, logged_lines

PROGRAM = Path(__file__).with_name("miniature.py")

Started = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def started(corpus: Path, task: str, tmp_path: Path) -> Started:
    """A function that starts an experiment in a directory, as one process of it."""

    def start(root: Path, **variables: str) -> subprocess.Popen[bytes]:
        changes = {"JAX_NUM_CPU_DEVICES": "1", "XLA_FLAGS": flags_for_one_device()}
        command = [sys.executable, PROGRAM, root, corpus / "*.txt", task]
        with (tmp_path / "log.txt").open("ab") as log:
            return subprocess.Popen(
                command, env=os.environ | changes | variables, stdout=log, stderr=log
            )

    return start


def files_of(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.reliability
def test_killed_at_random_moments_it_gives_the_same_table(started, tmp_path):
    """Inputs, pretraining, fine-tuning, measures and tables: each may be hit."""
    dice = random.Random(0)
    assert started(tmp_path / "first").wait(300) == 0  # compiles for the others
    start = time.monotonic()
    assert started(tmp_path / "whole").wait(300) == 0
    seconds = time.monotonic() - start
    root = tmp_path / "killed"
    reached = set()
    for kill in range(12):
        process = started(root)
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Most of the time is imports, so that some kills make no progress.
            process.wait(seconds * dice.uniform(0.3, 0.9))
        process.kill()
        process.wait(60)
        reached.add(len(files_of(root)))
        if (root / "results.md").exists() and kill < 11:
            shutil.rmtree(root)  # begin anew
    assert len(reached) > 4  # it was hit in different states
    assert started(root).wait(300) == 0
    for name in ("results.csv", "seeds.csv"):
        assert (root / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    left = {path for path in files_of(root) if path.endswith((".tmp", ".lock"))}
    assert not {path for path in left if "/" not in path}


@pytest.mark.slow
def test_two_processes_run_an_experiment_as_one_does(started, tmp_path):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    variables = {
        "BERT_JAX_COORDINATOR": f"127.0.0.1:{port}",
        "BERT_JAX_NUM_PROCESSES": "2",
    }
    root = tmp_path / "two"
    processes = [
        started(root, BERT_JAX_PROCESS_ID=str(rank), **variables) for rank in range(2)
    ]
    try:
        assert [process.wait(300) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    assert started(tmp_path / "one").wait(300) == 0
    workdirs = [path.parent for path in root.glob("cells/*/*/*/metrics.jsonl")]
    assert len(workdirs) == 3  # pretraining, and fine-tuning on [CLS] and on the mean
    for workdir in workdirs:
        ours = logged_lines(workdir)
        theirs = logged_lines(tmp_path / "one" / workdir.relative_to(root))
        assert [line["step"] for line in ours] == [line["step"] for line in theirs]
        for line, other in zip(ours, theirs, strict=True):
            assert line["loss"] == pytest.approx(other["loss"], rel=1e-4)
    assert (root / "results.md").exists()
