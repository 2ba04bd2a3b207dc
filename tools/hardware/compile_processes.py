"""Compile training steps in processes of their own, and keep the results."""

import contextlib
import functools
import hashlib
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import jax
from compile_child import read_figures
from targets import BenchmarkTarget

import bert_jax
from bert_jax.apps.benchmark.figures import Figures
from bert_jax.config import PretrainConfig
from bert_jax.config.serialization import to_dict
from bert_jax.distributed.topologies import Topology, compiler_version
from bert_jax.terminal.messages import one_line, say

MAX_COMPILATIONS = 3
"""Of one configuration for one topology, with more and more microbatches."""
_STEP_PACKAGES = ("distributed", "masking", "model", "runs", "tasks", "training")
"""The packages that define the program, besides the configuration."""


ROOT = Path(bert_jax.__file__).parent


def step_sources() -> list[Path]:
    """Return the source files that define the program of a step."""
    return [p for name in _STEP_PACKAGES for p in sorted((ROOT / name).rglob("*.py"))]


@functools.cache
def sources_hash() -> str:
    """Return a hash of `step_sources`."""
    digest = hashlib.sha256()
    for path in step_sources():
        name = path.relative_to(ROOT).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def fingerprint(config: PretrainConfig, topology: Topology) -> str:
    """Return a hash of all that may change a program, and of its compiler.

    While it is the same, a result is kept without a look at the program. Otherwise the
    program is lowered, and compiled if it has changed.
    """
    parts = [
        to_dict(config),
        topology.name,
        compiler_version(topology),
        jax.__version__,
        sources_hash(),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def next_microbatches(
    figures: Figures, microbatches: int, shard_rows: int, usable_memory: float
) -> int | None:
    """Return the number of microbatches to compile after a program that does not fit.

    It is the smallest that fits if the temporary memory falls in proportion, or else
    the largest one, of multiples by a power of two. None: more would not help.

    Args:
        figures: of the program with `microbatches`.
        usable_memory: bytes of a device.
    """
    memory = {
        name: size * 2**20 for name, size in figures["memory_of_each_mib"].items()
    }
    state = memory["parameters"] + memory["optimizer"]
    counts = []
    count = 2 * microbatches
    while shard_rows % count == 0:
        counts.append(count)
        count *= 2
    if state >= usable_memory or not counts:
        return None
    temporary = memory["activations and gradients"] * microbatches
    fitting = (n for n in counts if state + temporary / n <= usable_memory)
    return next(fitting, counts[-1])


class Compilations:
    """Compiles targets in processes, and keeps each result in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.num_compiled = self.num_kept = 0
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[str]] = set()
        self._is_stopped = False
        directory.mkdir(parents=True, exist_ok=True)

    def compile_until_it_fits(self, target: BenchmarkTarget) -> Figures:
        """Return the figures of the last program of a target, or why it failed."""
        count = target.config.microbatches
        for number in range(MAX_COMPILATIONS):
            figures = self.compile(target, count)
            if "error" in figures or figures["fits"]:
                break
            usable = target.topology.usable_memory
            more = next_microbatches(figures, count, target.shard_rows, usable)
            if more is None or number == MAX_COMPILATIONS - 1:
                break
            count = more
        return figures

    def compile(self, target: BenchmarkTarget, microbatches: int) -> Figures:
        """Return the figures of a program, from the directory if they are there."""
        config = target.with_microbatches(microbatches)
        topology = target.topology
        name = f"{target.name}-{topology.name.replace(':', '-')}-{microbatches}"
        path = self.directory / f"{name}.json"
        key = fingerprint(config, topology)
        figures = read_figures(path) or {}
        is_kept = True
        if figures.get("fingerprint") != key:
            before = figures
            job = {"config": to_dict(config), "topology": topology.name}
            error = self._run(job | {"file": str(path), "fingerprint": key}, path)
            figures = {"error": error} if error else read_figures(path) or {}
            is_kept = same_program(figures, before)
        with self._lock:
            self.num_kept += is_kept
            self.num_compiled += not is_kept
        say(f"{name}: {summary(figures)}")
        return figures | {"microbatches": microbatches}

    def _run(self, job: Figures, path: Path) -> str:
        """Compile in a process; return why it failed, or nothing."""
        command = [sys.executable, str(Path(__file__).with_name("compile_child.py"))]
        log = path.with_suffix(".log")
        with log.open("w") as output:
            with self._lock:
                if self._is_stopped:
                    return "interrupted"
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    text=True,
                )
                self._children.add(child)
            assert child.stdin
            # Left open while the child works, which ends if this process is killed.
            with contextlib.suppress(BrokenPipeError), child.stdin as job_input:
                print(json.dumps(job), file=job_input, flush=True)
                child.wait()
            child.wait()
        with self._lock:
            self._children.discard(child)
        return failure(child.returncode, log) if child.returncode else ""

    def stop(self) -> None:
        """End what is being compiled, and compile nothing more."""
        with self._lock:
            self._is_stopped = True
            for child in self._children:
                child.terminate()


def same_program(figures: Figures, before: Figures) -> bool:
    """Whether figures are those of an earlier compilation."""
    blank = {"fingerprint": ""}
    return bool(before) and figures | blank == before | blank


def failure(code: int, log: Path) -> str:
    """Return why a process failed, in a line: a signal, or the last of its error."""
    if code < 0:
        return f"the compiler's process was ended by {signal.Signals(-code).name}"
    lines = [line for line in log.read_text(errors="replace").splitlines() if line]
    return one_line(lines[-1])[:200] if lines else f"exit code {code}"


def summary(figures: Figures) -> str:
    """Return the line that is printed when a program is compiled."""
    if error := figures.get("error"):
        return f"failed: {error}"
    total = figures["memory_of_each_mib"]["in all"] / 1024
    fits = "fits" if figures["fits"] else "does not fit"
    return f"{total:.2f} GiB, {fits} ({figures['compile_cpu_seconds']:.0f} s of CPU)"
