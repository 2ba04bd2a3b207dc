"""One process of a run of several; started by test_distributed.py.

It gives the command line one job after the other, and notes the exit codes.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_jax.cli import main as cli
from bert_jax.training import loop

device_batches = loop.device_batches


def main(jobs_file: str) -> int:
    """Do the jobs; the exit code is the largest of theirs."""
    process = int(os.environ["BERT_JAX_PROCESS_ID"])
    codes = []
    # Its import takes seconds; the same batches are read without it.
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    for job in json.loads(Path(jobs_file).read_text()):

        def batches(*arguments: Any, job: Any = job) -> Iterator[Any]:
            for number, batch in enumerate(device_batches(*arguments), 1):
                if job["sigterm"] == [process, number]:
                    signal.raise_signal(signal.SIGTERM)
                yield batch

        loop.device_batches = batches
        codes.append(cli.main(job["arguments"][process]))
    Path(f"{jobs_file}.{process}").write_text(json.dumps(codes))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
