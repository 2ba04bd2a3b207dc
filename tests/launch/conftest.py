"""A folder with fakes of all that the launchers call, and a log of the calls."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FAKES = Path(__file__).parent / "fakes"

# What a worker calls, in shell since it is called often. Each logs its last arguments.
LOG = """for last; do before=$first first=$last; done
printf '{"program": "%s", "worker": "%s", "arguments": ["%s", "%s"]}\\n' \\
  "${0##*/}" "$FAKE_WORKER" "$before" "$last" >>"$FAKE_WORLD/log"
"""
UV = """if [ "$1 $2 $3" = "-m uv venv" ]; then
  mkdir -p "$last/bin" && cp "$FAKE_WORLD/bin/bert-jax" "$last/bin"
fi"""


class World:
    """The fakes on PATH, and what they were told and asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, fake in {
            "bin/gcloud": "gcloud.py",
            "bin/kubectl": "kubectl.py",
            "bin/bert-jax": "bert_jax.py",
            "bin/srun": "slurm.py srun",
            "bin/sbatch": "slurm.py sbatch",
            "bin/scontrol": "slurm.py scontrol",
            "bin/squeue": "slurm.py squeue",
            "bin/rsync": "slurm.py rsync",
        }.items():
            self.program(name, f'exec "{sys.executable}" -BSEs "{FAKES}/"{fake} "$@"')
        self.program("worker_bin/gcloud", LOG)
        self.program("worker_bin/python3", LOG + UV)
        self.environment = {
            "FAKE_WORLD": str(folder),
            "HOME": str(folder),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "POLL_SECONDS": "0.03",
            "DATA_128": "gs://bucket/data128",
            "DATA_512": "gs://bucket/data512",
            "WORKDIR": "gs://bucket/run",
        }
        self.started: list[subprocess.Popen[str]] = []

    def program(self, name: str, body: str) -> None:
        """Write a shell script into the world."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def tell(self, name: str, value: Any) -> None:
        """Say how a fake shall behave."""
        (self.folder / f"{name}.json").write_text(json.dumps(value))

    def start(
        self, script: str, *arguments: str, **variables: str
    ) -> subprocess.Popen[str]:
        """Start a launcher in a process group of its own."""
        process = subprocess.Popen(
            ["bash", str(ROOT / "launch" / script), *arguments],
            cwd=ROOT,
            env=self.environment | variables,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def launch(
        self, script: str, *arguments: str, **variables: str
    ) -> tuple[int, str, str]:
        """Run a launcher to its end: exit code, output, complaints."""
        process = self.start(script, *arguments, **variables)
        output, errors = process.communicate(timeout=60)
        return process.returncode, output, errors

    def calls(self, *programs: str) -> list[dict[str, Any]]:
        """What was called, in order; of some programs only, where any are named."""
        path = self.folder / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [c for c in found if not programs or c["program"] in programs]

    def wait_for(self, name: str) -> None:
        """Wait until a fake has left a file of that name."""
        for _ in range(1500):
            if (self.folder / name).exists():
                return
            time.sleep(0.02)
        raise TimeoutError(f"no {name} after 30 s; {self.calls()}")

    def end(self) -> None:
        """Leave nothing running, neither launchers nor what they started."""
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for path in self.folder.glob("worker */bert_jax_run/group.pid"):
            with suppress(ProcessLookupError):
                os.killpg(int(path.read_text()), signal.SIGKILL)


@pytest.fixture(scope="session")
def interruptible() -> Iterator[None]:
    """Children that heed SIGINT, though tests may run in the background of a script,
    where it is ignored: no trap of a shell could change that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def world(tmp_path: Path, interruptible: None) -> Iterator[World]:
    """A world of fakes, whose name holds a space."""
    folder = tmp_path / "a world"
    folder.mkdir()
    world = World(folder)
    yield world
    world.end()
