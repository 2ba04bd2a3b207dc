"""SIGINT and SIGTERM from the first moment on: 130 and 143, and no traceback."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STARTS = {
    "python -m bert_jax": ["-m", "bert_jax"],
    # What pip writes into the script.
    "bert-jax": [
        "-c",
        "import sys; from bert_jax.__main__ import main; sys.exit(main())",
    ],
}


def caught(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has installed a handler of SIGTERM."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(line.split()[1], 16) >> signal.SIGTERM - 1 & 1)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    "moments",
    [
        (0.0, 0.02, 0.5),
        pytest.param(
            (0.005, 0.01, 0.05, 0.1, 0.2, 1.0, 2.0), marks=pytest.mark.reliability
        ),
    ],
)
def test_d_signals_while_importing(moments, start, number, tmp_path):
    """At moments of the start: before and in its exec with huge pages, and after."""
    for moment in moments:
        process = subprocess.Popen(
            [sys.executable, *STARTS[start], "demo", "--workdir", str(tmp_path / "w")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        # Before, Python is starting, and none of our code has run.
        while process.poll() is None and not caught(process):
            time.sleep(0.001)
        time.sleep(moment)
        process.send_signal(number)
        try:
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
        assert (process.returncode, error) == (128 + number, b""), moment


def test_signals_that_are_ignored_stay_ignored():
    """As those of a process in the background of a shell, or under nohup."""
    code = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from bert_jax.terminal import signals\n"
        "signals.install()\n"
        "with signals.interruptible():\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "print('went on')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr


@pytest.mark.parametrize(
    ("number", "tidied"), [(signal.SIGINT, True), (signal.SIGTERM, False)]
)
def test_a_verb_can_tidy_up_after_sigint(number, tidied):
    code = (
        "import signal\n"
        "from bert_jax.terminal import signals\n"
        "signals.install()\n"
        "try:\n"
        "    with signals.interruptible():\n"
        f"        signal.raise_signal({int(number)})\n"
        "except KeyboardInterrupt:\n"
        "    print('tidied', flush=True)\n"
        "signal.raise_signal(signal.SIGINT)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == (130 if tidied else 143), done.stderr
    assert (done.stdout == "tidied\n") is tidied


def test_what_a_library_makes_of_an_interrupt_is_not_told():
    """Another error in its place, and one of an object that it left half-made."""
    code = (
        "import signal\n"
        "from bert_jax.cli.main import main\n"
        "from bert_jax.terminal import signals\n"
        "class HalfMade:\n"
        "    def __del__(self): self.missing\n"
        "def run(_):\n"
        "    made = HalfMade()\n"
        "    try:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "    finally:\n"
        "        raise RuntimeError('loop')\n"
        "signals.install()\n"
        "raise SystemExit(main([], run=run))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (done.returncode, done.stderr) == (130, b"")


def test_sigterm_while_a_library_does_not_come_back():
    """Python calls handlers in its main thread alone, which waits in a library."""
    code = (
        "import ctypes\n"
        "from bert_jax.terminal import signals\n"
        "signals.install()\n"
        "print('ready', flush=True)\n"
        "libc = ctypes.CDLL(None)\n"
        "while True:\n"
        "    left = 600\n"
        "    while left:\n"
        "        left = libc.sleep(left)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")]
)
def test_a_run_says_at_once_that_it_will_stop(number, name):
    """While its main thread is in a library, for a minute, and no handler is called."""
    code = (
        "import hashlib\n"
        "from bert_jax.terminal import signals\n"
        "from bert_jax.training.faults import StopSignals\n"
        "signals.install()\n"
        "with StopSignals():\n"
        "    print('ready', flush=True)\n"
        "    hashlib.pbkdf2_hmac('sha256', b'', b'', 10**8)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        start = time.monotonic()
        process.send_signal(number)
        line = process.stdout.readline()
        process.kill()
    assert line.startswith(f"{name}: the run stops after this step, with a checkpoint;")
    assert time.monotonic() - start < 10 and process.returncode == -signal.SIGKILL
