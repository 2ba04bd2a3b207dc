"""Waiting for the other processes, and a line when one is lost: real processes."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_helpers import flags_for_one_device

from bert_jax.distributed import startup as distributed

JOINED = (
    "import os, time\nfrom bert_jax.distributed import startup as distributed\n"
    "distributed.start(os.environ)\nprint('joined', flush=True)\ntime.sleep({})"
)
STACK = "Check failure stack trace"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


def environment(port: int, process: int, number: int = 2) -> dict[str, str]:
    return os.environ | {
        "BERT_JAX_COORDINATOR": f"127.0.0.1:{port}",
        "BERT_JAX_NUM_PROCESSES": str(number),
        "BERT_JAX_PROCESS_ID": str(process),
        "JAX_NUM_CPU_DEVICES": "1",
        "XLA_FLAGS": flags_for_one_device(),
    }


def wait_until(text: str, path: Path, seconds: float = 120) -> str:
    """What the file holds once `text` is in it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and text in (content := path.read_text()):
            return content
        time.sleep(0.05)
    raise TimeoutError(f"no {text!r} in {path}: {path.read_text()}")


@contextlib.contextmanager
def joined(
    folder: Path, seconds: float, number: int = 2
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that have met, and sleep; each writes its output into a file."""
    port, children = free_port(), []
    for process in range(number):
        with (folder / f"{process}").open("wb") as out:
            children.append(
                subprocess.Popen(
                    [sys.executable, "-c", JOINED.format(seconds)],
                    stdout=out,
                    stderr=out,
                    env=environment(port, process, number),
                )
            )
    try:
        for process in range(number):
            wait_until("joined", folder / str(process))
        yield children
    finally:
        for child in children:
            child.kill()
            child.wait()


@pytest.mark.parametrize("killed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_killed_ranks_neighbour_says_so_first(killed, tmp_path):
    """A9: one line of ours, before the runtime's stack trace if there is one."""
    with joined(tmp_path, 100) as children:
        children[killed].send_signal(signal.SIGKILL)
        log = tmp_path / str(1 - killed)
        line = f"bert-jax: process {killed} of 2 is gone: killed, crashed, or its host"
        said = wait_until(line, log, 20)
        assert STACK not in said[: said.index(line)]
        assert "resume from the latest verified checkpoint." in said
        if killed == 0:  # with it the runtime's service is gone
            assert children[1].wait(60) == -signal.SIGABRT
        assert log.read_text().count("bert-jax: ") == 1


@pytest.mark.slow
def test_the_others_hear_of_it_too(tmp_path):
    """A9: process 0 tells those that are not connected with the one that is lost."""
    with joined(tmp_path, 100, number=3) as children:
        children[2].send_signal(signal.SIGKILL)
        for process in (0, 1):
            wait_until("process 2 of 3 is gone", tmp_path / str(process), 20)


def test_the_end_of_a_process_is_no_loss(tmp_path):
    with joined(tmp_path, 0.5) as children:
        assert [child.wait(60) for child in children] == [0, 0]
        for process in (0, 1):
            assert "bert-jax: " not in (tmp_path / str(process)).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_an_unreachable_coordinator_is_named_within_seconds(verb, tmp_path):
    """E: who is waited for, how long, and one line at the end; exit code 1."""
    port = free_port()
    asked = [verb, "--workdir", str(tmp_path / "run"), "--initialization-timeout", "5"]
    if verb == "finetune":
        asked.insert(1, "text-classification")
    done = subprocess.run(
        [sys.executable, "-m", "bert_jax", *asked],
        env=environment(port, 1),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 1, done.stderr
    first, last = done.stderr.splitlines()
    who = f"aiting for the coordinator at 127.0.0.1:{port} (process 1 of 2; Connection "
    assert first == f"W{who}refused), up to 2 s more."
    assert last.startswith(f"bert-jax: The other processes cannot be reached: w{who}")
    assert "within --initialization-timeout" in last
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_process_0_says_that_it_waits_for_the_others(tmp_path):
    """E: and Ctrl-C is heard, which JAX would not."""
    # A script in the background has children that ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    child = subprocess.Popen(
        [sys.executable, "-m", "bert_jax", "pretrain", "--workdir", str(tmp_path)],
        env=environment(port := free_port(), 0),
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    assert child.stderr is not None
    line = child.stderr.readline()
    assert line == (
        f"Waiting at 127.0.0.1:{port} for the others (process 0 of 2), up to 297 s "
        "more.\n"
    )
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 130
    child.stderr.close()


@pytest.mark.parametrize("seconds", [0, -3, 10**9])
def test_a_timeout_that_cannot_be(seconds):
    with pytest.raises(ValueError, match=f"timeout={seconds} must be from 1 to 604800"):
        distributed.start({}, seconds)


TWO_PIECES = """
import socket, threading, time
from bert_jax.distributed.peer_monitor import PeerMonitor
monitor = PeerMonitor(0, 3, "token")
port = monitor.listen()
threading.Thread(target=monitor.run, daemon=True).start()
peer = socket.create_connection(("127.0.0.1", port))
for piece in (b"token 1\\n", b"lost 2 i", b"s gone\\n"):
    peer.sendall(piece)
    time.sleep(0.5)
"""


def test_a_message_that_arrives_in_two_pieces_is_read_as_one():
    command = [sys.executable, "-c", TWO_PIECES]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "bert-jax: process 2 of 3 is gone. Process 0 cannot" in child.stderr
