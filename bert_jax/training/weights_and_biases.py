"""Send scalars to Weights & Biases."""

import os
import secrets
from collections.abc import Mapping
from typing import final

from etils import epath

from bert_jax.config import RunConfig
from bert_jax.config.serialization import to_dict
from bert_jax.training.logger import Logger

RUN_ID = "wandb_run_id.txt"


@final
class WeightsAndBiases(Logger):
    """A run of the package `wandb`; a resumed run of ours continues it.

    The environment variables of `wandb` decide the rest, such as WANDB_PROJECT and
    WANDB_MODE=offline, in which the run is kept in the directory `wandb`.
    """

    name = "wandb"

    def __init__(self, config: RunConfig, folder: epath.Path) -> None:
        """Start or continue the run; its id is kept in `folder`.

        Raises:
            ModuleNotFoundError: wandb is not installed.
        """
        try:
            import wandb
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "report=wandb needs the package wandb, which is not installed: pip "
                "install 'bert_jax[wandb]', or leave it out of --report"
            ) from error
        with self.recording_problem():
            identifier = folder / RUN_ID
            if not identifier.exists():
                identifier.write_text(secrets.token_hex(4) + "\n")
            self._run = wandb.init(
                id=identifier.read_text().strip(),
                resume="allow",
                name=None if "WANDB_NAME" in os.environ else folder.name,
                project=os.environ.get("WANDB_PROJECT", "bert_jax"),
                dir=os.fspath(folder),
                config=to_dict(config),
                settings=wandb.Settings(console="off", silent=True),
            )
            # wandb's own step cannot go back, as the lines of a resumed run may.
            self._run.define_metric("*", step_metric="step")

    def _write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        names = {f"{split}/{name}": value for name, value in scalars.items()}
        self._run.log({"step": step} | names)

    def _flush(self) -> None:
        """A no-op: a process of wandb's own writes the points at once."""

    def _close(self) -> None:
        self._run.finish()
