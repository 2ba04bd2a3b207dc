"""Run PyTorch in separate processes, each driven over a pipe by lines of text.

Thus neither library competes with the other's threads or memory.
"""

import contextlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Int

from bert_jax.apps.benchmark.figures import Figures
from bert_jax.apps.benchmark.options import InferenceOptions
from bert_jax.config import PretrainConfig
from bert_jax.config.serialization import to_dict
from bert_jax.terminal.messages import warn

TorchArrays = dict[str, Int[np.ndarray, "..."]]
"""A batch under the argument names of transformers."""


def torch_device() -> str:
    """Return PyTorch's name of the default device; raise ValueError if it has none."""
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            raise ValueError(
                f"--compare torch needs {name}, which is not installed; "
                "install bert_jax[parity]."
            )
    backend, devices = jax.default_backend(), {"cpu": "cpu", "gpu": "cuda"}
    if backend not in devices:
        raise ValueError(
            f"--compare torch on backend={backend}: PyTorch runs on cpu and gpu here; "
            "leave --compare out."
        )
    return devices[backend]


class TorchProcess:
    """A process that runs one job, some steps at a time, until the context ends."""

    def __init__(self, job: Figures, arrays: TorchArrays) -> None:
        self.figures: Figures = {}
        self._folder = tempfile.TemporaryDirectory()
        rows = Path(self._folder.name) / "rows.npz"
        self._log = Path(self._folder.name) / "log"
        np.savez(rows, allow_pickle=False, **arrays)
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bert_jax.apps.benchmark.pytorch_child"],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._job = json.dumps(job | {"rows": str(rows)})

    def __enter__(self) -> "TorchProcess":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=30)  # closes its input, which ends it
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._folder.cleanup()

    def _request(self, line: str) -> Figures:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        # If it has ended, its last answer is read below.
        with contextlib.suppress(BrokenPipeError):
            print(line, file=process.stdin, flush=True)
        answer_line = process.stdout.readline()
        if not answer_line:
            code = process.wait()
            last = self._log.read_text(errors="replace").rstrip().split("\n")[-1]
            raise RuntimeError(f"PyTorch's process ended with code {code}. {last}")
        answer: Figures = json.loads(answer_line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def wait_until_ready(self) -> None:
        """Wait for its first step, compiling included; RuntimeError if it failed."""
        self.figures |= self._request(self._job)

    def time_steps(self, steps: int) -> float:
        """Run one step untimed, then `steps`; return the seconds of one of these."""
        answer = self._request(f"run {steps} steps")
        seconds: float = answer.pop("seconds")
        self.figures |= answer
        return seconds


def start_processes(
    stack: contextlib.ExitStack,
    options: InferenceOptions,
    config: PretrainConfig,
    variants: Sequence[str],
    arrays: Callable[[], TorchArrays],
) -> tuple[dict[str, TorchProcess], dict[str, str]]:
    """Start a process for each program of PyTorch; none without `--compare`.

    Return the processes that are ready, and the errors of those that failed, by the
    names of their columns; raise RuntimeError if all failed.
    """
    ready: dict[str, TorchProcess] = {}
    failed: dict[str, str] = {}
    if not options.compare:
        return ready, failed
    device, rows = torch_device(), arrays()
    compiles = (False, True) if options.torch_compile else (False,)
    for compile, variant in itertools.product(compiles, variants):
        name = f"torch_{variant}" + "_compiled" * compile
        job = {
            "variant": variant,
            "compile": compile,
            "device": device,
            "threads": options.threads,
            "config": to_dict(config),
        }
        process = stack.enter_context(TorchProcess(job, rows))
        try:
            process.wait_until_ready()
            ready[name] = process
        except RuntimeError as error:
            failed[name] = str(error)
            warn(f"{name}: left out: {error}")
    if not ready:
        raise RuntimeError(f"No PyTorch program runs here: {failed}")
    return ready, failed
