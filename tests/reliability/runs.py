"""Runs as processes of the command line."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from run_helpers import NO_TENSORFLOW, flags_for_one_device

from bert_jax.config import OptimizerConfig, PretrainConfig

REPOSITORY = Path(__file__).parents[2]
AS_USERS_HAVE_THEM = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": ""}


def environment(**changes: str) -> dict[str, str]:
    """Of a process: one CPU device, and no TensorFlow.

    Programs are compiled as in this process, unless `changes` has AS_USERS_HAVE_THEM.
    """
    kept = {k: v for k, v in os.environ.items() if k != "BERT_JAX_COORDINATOR"}
    paths = [str(NO_TENSORFLOW), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    told = {
        "XLA_FLAGS": flags_for_one_device(),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
    }
    return kept | told | changes


@dataclasses.dataclass
class Process:
    """One process of the command line; its output goes to files."""

    child: subprocess.Popen[bytes]
    output: Path
    errors: Path

    @property
    def ended(self) -> bool:
        return self.child.poll() is not None

    def code(self, seconds: float = 120) -> int:
        """Its exit code as a shell gives it: 128 and the number of a signal."""
        code = self.child.wait(seconds)
        return code if code >= 0 else 128 - code

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal, if it is still there."""
        if not self.ended:
            self.child.send_signal(number)

    def stdout(self) -> str:
        return self.output.read_text(errors="replace")

    def stderr(self) -> str:
        """Standard error without what the libraries below log."""
        lines = self.errors.read_text(errors="replace").splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("[Gloo]"))


@contextmanager
def started_program(
    program: list[str], log: Path, prefix: tuple[str, ...] = (), **changes: str
) -> Iterator[Process]:
    """A process of Python; killed at the end if it is still there.

    Args:
        program: what Python is given.
        log: where its two streams go, as `log`.out and `log`.err.
        prefix: a command that runs it.
        changes: of the environment.
    """
    output, errors = log.with_suffix(".out"), log.with_suffix(".err")
    with output.open("wb") as out, errors.open("wb") as err:
        child = subprocess.Popen(
            [*prefix, sys.executable, *program],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment(**changes),
        )
    try:
        yield Process(child, output, errors)
    finally:
        child.kill()
        child.wait()


def started(
    arguments: list[str], log: Path, prefix: tuple[str, ...] = (), **changes: str
) -> AbstractContextManager[Process]:
    """The command line as a process; else as `started_program`."""
    return started_program(["-m", "bert_jax", *arguments], log, prefix, **changes)


def run(arguments: list[str], log: Path, code: int = 0, **changes: str) -> Process:
    """A process that runs to its end, which must be `code`."""
    with started(arguments, log, **changes) as process:
        assert process.code(600) == code, process.stderr()[-2000:]
    return process


def wait_until(
    condition: Callable[[], bool],
    process: Process,
    seconds: float = 120,
    pause: float = 0.002,
) -> bool:
    """Whether `condition` came true before the process ended."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.ended:
            return False
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(pause)
    return True


def saves_often(config: PretrainConfig, num_steps: int) -> PretrainConfig:
    """A run that logs, saves and evaluates so often that a kill hits each of them.

    Its programs do not depend on `num_steps`, so that all such runs share them.
    """
    optimizer = OptimizerConfig(peak_learning_rate=1e-2, warmup_steps=2, decay_steps=60)
    return dataclasses.replace(
        config,
        optimizer=optimizer,
        num_steps=num_steps,
        log_every=1,
        eval_every=10,
        checkpoint_every=3,
        log_examples=True,
    )


def wait_for_steps(workdir: Path, number: int, process: Process) -> bool:
    """Whether the run logged so many steps before the process ended."""
    return wait_until(lambda: logged_steps(workdir) >= number, process)


def logged_steps(workdir: Path) -> int:
    """How many training lines the run has written."""
    with suppress(FileNotFoundError):
        return (workdir / "metrics.jsonl").read_bytes().count(b'"split": "train"')
    return 0
