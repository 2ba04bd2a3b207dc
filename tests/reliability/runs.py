"""Runs as processes of the command line, and what they leave on disk."""

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from bert_jax.config import OptimizerConfig, PretrainConfig, RunConfig
from bert_jax.config.serialization import to_dict

REPOSITORY = Path(__file__).parents[2]
NO_TENSORFLOW = Path(__file__).with_name("without_tensorflow")
RATES = ("tokens_per_second", "data_wait", "mfu")
"""What a clock says, and two equal runs need not share."""
AS_USERS_HAVE_THEM = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
CONFIG_FILE = """\
import json
from bert_jax.config import {kind}
from bert_jax.config.serialization import from_dict
config = from_dict({kind}, json.loads({text!r}))
"""


def environment(**changes: str) -> dict[str, str]:
    """Of a process: one CPU device, and no TensorFlow.

    Programs are compiled in haste, unless `changes` has AS_USERS_HAVE_THEM.
    """
    ours = {"XLA_FLAGS", "BERT_JAX_COORDINATOR"}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    paths = [str(NO_TENSORFLOW), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    told = {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
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

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def complained(self) -> str:
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
        assert process.code(600) == code, process.complained()[-2000:]
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


def write_config(config: RunConfig, path: Path) -> Path:
    """A configuration file that binds `config`."""
    kind, text = type(config).__name__, json.dumps(to_dict(config))
    path.write_text(CONFIG_FILE.format(kind=kind, text=text))
    return path


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


def names_in(directory: Path) -> list[str]:
    """The names in a directory, none where it is not there."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(directory)
    return []


def steps(workdir: Path) -> list[int]:
    """The steps that have a directory, whole or not, in order."""
    return sorted(int(n) for n in names_in(workdir / "checkpoints") if n.isdigit())


def is_whole(step: Path) -> bool:
    """Whether a checkpoint has a manifest that all of its files agree with."""
    try:
        files = json.loads((step / "manifest.json").read_text())["files"]
    except FileNotFoundError:
        return False
    for file in files:
        content = (step / file["path"]).read_bytes()
        if hashlib.sha256(content).hexdigest() != file["sha256"]:
            return False
    return bool(files)


def latest_verified_step(workdir: Path) -> int:
    """The newest whole step, 0 where there is none."""
    whole = [n for n in steps(workdir) if is_whole(workdir / "checkpoints" / str(n))]
    return max(whole, default=0)


def lines(workdir: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """The lines of a file of the run, without rates and without a torn last one."""
    found = []
    with suppress(FileNotFoundError):
        for line in (workdir / name).read_text().split("\n")[:-1]:
            scalars = json.loads(line)
            found.append({k: v for k, v in scalars.items() if k not in RATES})
    return found


def logged_steps(workdir: Path) -> int:
    """How many training lines the run has written."""
    with suppress(FileNotFoundError):
        return (workdir / "metrics.jsonl").read_bytes().count(b'"split": "train"')
    return 0


def arrays(checkpoint: Path, *items: str) -> dict[str, bytes]:
    """The bytes of every array in parts of a checkpoint."""
    found = {}
    for item in items:
        folder = (checkpoint / item).absolute()
        handler = ocp.PyTreeCheckpointHandler()
        wanted = jax.tree.map(
            lambda _: ocp.RestoreArgs(restore_type=np.ndarray),
            handler.metadata(folder).tree,
        )
        tree = handler.restore(folder, args=ocp.args.PyTreeRestore(restore_args=wanted))
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            found[item + jax.tree_util.keystr(path)] = np.asarray(leaf).tobytes()
    return found


def assert_identical(run: Path, never_stopped: Path) -> None:
    """All logged losses, the example ids and the last arrays, bit by bit."""
    for name in ("metrics.jsonl", "examples.jsonl"):
        ours, theirs = lines(run, name), lines(never_stopped, name)
        assert theirs or name == "examples.jsonl"
        assert [x["step"] for x in ours] == [x["step"] for x in theirs], name
        for line, other in zip(ours, theirs, strict=True):
            assert line == other, name
    last = steps(never_stopped)[-1]
    assert latest_verified_step(run) == latest_verified_step(never_stopped) == last
    ours, theirs = (
        arrays(workdir / "checkpoints" / str(last), "state", "optimizer")
        for workdir in (run, never_stopped)
    )
    assert ours.keys() == theirs.keys()
    differing = [name for name in ours if ours[name] != theirs[name]]
    assert not differing, differing
