"""Send scalars to Weights & Biases."""

import os
import secrets
from collections.abc import Mapping
from typing import Any, final

from etils import epath

from bert_jax.config import RunConfig
from bert_jax.config.serialization import to_dict
from bert_jax.storage.atomic import is_address
from bert_jax.training.logger import Logger

RUN_ID = "wandb_run_id.txt"


@final
class WeightsAndBiases(Logger):
    """A run of the package `wandb`; a resumed run of ours continues it.

    The environment variables of `wandb` decide the rest, such as WANDB_PROJECT and
    WANDB_MODE=offline, in which the run is kept in the directory `wandb`.
    """

    name = "wandb"

    def __init__(self, config: RunConfig, workdir: epath.Path) -> None:
        """Start or continue the run; its id is kept in `workdir`.

        Its files are in the directory `wandb` of `workdir`, or of the current directory
        if `workdir` is in a bucket.
        """
        self._run: Any = None
        with self.recording_problem():
            import wandb

            identifier = workdir / RUN_ID
            if not identifier.exists():
                identifier.write_text(secrets.token_hex(4) + "\n")
            self._run = wandb.init(
                id=identifier.read_text().strip(),
                resume="allow",
                name=None if "WANDB_NAME" in os.environ else workdir.name,
                project=os.environ.get("WANDB_PROJECT", "bert_jax"),
                dir=None if is_address(workdir) else os.fspath(workdir),
                config=to_dict(config),
                # A run of wandb that the calling program has open stays its own.
                settings=wandb.Settings(
                    console="off", silent=True, reinit="create_new"
                ),
            )
            # wandb's own step cannot go back, as the lines of a resumed run may.
            self._run.define_metric("*", step_metric="step")

    def _write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        names = {f"{split}/{name}": value for name, value in scalars.items()}
        self._run.log({"step": step} | names)

    def _flush(self) -> None:
        """A no-op: a process of wandb's own writes the points at once."""

    def _close(self) -> None:
        if self._run is not None:
            self._run.finish()
