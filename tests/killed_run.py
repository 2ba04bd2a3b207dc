"""A run that kills its own process: `killed_run.py CONFIG WORKDIR STEP CHECKPOINT`."""

import os
import runpy
import signal
import sys
import time
from typing import Any

import bert_jax
from bert_jax.config import PretrainConfig
from bert_jax.training.report import Report


def main(file: str, workdir: str, last: int, checkpoint: int) -> None:
    """Run until after the training line of `last`, and the end of a save."""
    write = Report.write

    def write_and_die(self: Report, step: int, split: str, scalars: Any) -> None:
        write(self, step, split, scalars)
        if step == last and split == "train":
            with open(f"{workdir}/metrics.jsonl", "a") as metrics:
                metrics.write('{"step": 8, "spl')  # a torn line
            while not os.path.exists(
                f"{workdir}/checkpoints/{checkpoint}/manifest.json"
            ):
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGKILL)

    Report.write = write_and_die  # type: ignore[method-assign]
    config = runpy.run_path(file)["config"]
    pretrains = isinstance(config, PretrainConfig)
    (bert_jax.pretrain if pretrains else bert_jax.finetune)(config, workdir)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
