"""PyTorch in processes of its own, each driven over a pipe: a line asked, one answered.

Neither library then has its threads or its memory beside the other's.
"""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from bert_jax.benchmark.figures import Figures
from bert_jax.config import BertConfig, OptimizerConfig

Arrays = dict[str, Int[np.ndarray, "..."]]


@dataclasses.dataclass(frozen=True)
class Job:
    """What a process is to run; it gets it as JSON."""

    variant: str
    """as_shipped, masked_head or encoder."""
    compile: bool
    device: str
    threads: int | None
    """None: all that the machine has."""
    microbatches: int
    model: BertConfig
    optimizer: OptimizerConfig


def check_installed(backend: str) -> str:
    """The device that PyTorch calls what JAX calls `backend`.

    Raises:
        ValueError: PyTorch or transformers is not installed, or has no such device.
    """
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            raise ValueError(
                f"--compare torch needs {name}, which is not installed; "
                "install bert_jax[parity]."
            )
    devices = {"cpu": "cpu", "gpu": "cuda"}
    if backend not in devices:
        raise ValueError(
            f"--compare torch on backend={backend}: PyTorch runs on cpu and gpu here; "
            "leave --compare out."
        )
    return devices[backend]


def leave_memory() -> None:
    """Keep JAX from taking most of a GPU's memory at its start, as others need some."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


class TorchProcess:
    """A process that runs one job, a turn at a time, until it is left."""

    def __init__(self, job: Job, arrays: Arrays) -> None:
        self.figures: Figures = {}
        self._folder = tempfile.TemporaryDirectory()
        rows, self._log = (
            Path(self._folder.name) / "rows.npz",
            self._folder.name + "/log",
        )
        np.savez(rows, allow_pickle=False, **arrays)
        package = str(Path(__file__).parents[2])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bert_jax.benchmark.pytorch_child"],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._ask = json.dumps(dataclasses.asdict(job) | {"rows": str(rows)})

    def __enter__(self) -> "TorchProcess":
        return self

    def __exit__(self, *_: Any) -> None:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        self._folder.cleanup()

    def _answer(self, line: str) -> Figures:
        """What it answers to a line.

        Raises:
            RuntimeError: it says that it failed, or says nothing more.
        """
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; what it said last is read below
        said = process.stdout.readline()
        if not said:
            code = process.wait()
            lines = Path(self._log).read_text(errors="replace").split("\n")
            last = next((text for text in reversed(lines) if text.strip()), "")
            raise RuntimeError(f"PyTorch's process ended with code {code}. {last}")
        answer: Figures = json.loads(said)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def wait_until_ready(self) -> None:
        """Wait for its first step, which compiles where it is to.

        Raises:
            RuntimeError: it failed.
        """
        self.figures |= self._answer(self._ask)

    def turn(self, steps: int) -> float:
        """Have it run, and tell the seconds of a step."""
        answer = self._answer(f"run {steps} steps")
        seconds: float = answer.pop("seconds")
        self.figures |= answer
        return seconds
