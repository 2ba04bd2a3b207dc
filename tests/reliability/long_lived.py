"""A worker process that is kept, and begun again where a file has ended it."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

START_SECONDS = 300.0
"""For the first answer: imports, and the first model."""
SILENT_SECONDS = 240.0
"""After which a worker is taken for stuck; it ends itself before that."""


class Worker:
    """`worker.py` over one directory of specimens."""

    def __init__(self, root: Path) -> None:
        """Prepare; the process starts with the first job.

        Args:
            root: has `specimens` below it, and gets the damaged copies.
        """
        self._root = root
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None

    def ask(self, **job: Any) -> dict[str, Any]:
        """The answer to a job; `kind` is "crash" if the process ended over it."""
        first = self._process is None
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        start = time.monotonic()
        wait = START_SECONDS if first else SILENT_SECONDS
        ready, _, _ = select.select([process.stdout], [], [], wait)
        line = process.stdout.readline() if ready else ""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        said = f"{job}: {'the process ended' if ready else 'no answer'}"
        self.close()
        log = self._log_path().read_text(errors="replace")
        shown = f"{said}\n{log[:2000]}\n…\n{log[-2000:]}"
        return {"kind": "crash", "said": shown, "seconds": time.monotonic() - start}

    def close(self) -> None:
        """End the process, if it has begun."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
        if self._log is not None:
            self._log.close()

    def _log_path(self) -> Path:
        return self._root / "worker.log"

    def _start(self) -> subprocess.Popen[str]:
        here = Path(__file__).parent
        paths = (str(here), str(here.parent), str(here.parents[1]))
        before = os.environ.get("PYTHONPATH", "")
        self._log = open(self._log_path(), "w")
        self._process = subprocess.Popen(
            [sys.executable, str(here / "worker.py"), str(self._root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join((*paths, before)),
                "JAX_PLATFORMS": "cpu",
            },
        )
        return self._process
