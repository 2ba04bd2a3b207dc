"""Open the loggers that a configuration names."""

import importlib.util
from collections.abc import Iterator

from etils import epath

from bert_jax.config import RunConfig
from bert_jax.config.checks import require
from bert_jax.terminal.messages import warn
from bert_jax.training.csv_table import CsvTable
from bert_jax.training.logger import Logger
from bert_jax.training.tensorboard import TensorBoard
from bert_jax.training.weights_and_biases import WeightsAndBiases


def require_loggers(config: RunConfig) -> None:
    """Raise ValueError if the package of a logger is missing, before a run begins."""
    require(
        "wandb" not in config.report or importlib.util.find_spec("wandb") is not None,
        "report=wandb needs the package wandb, which is not installed: pip install "
        "'bert_jax[wandb]', or leave it out of --report.",
    )


def open_loggers(
    config: RunConfig, workdir: epath.Path, folder: epath.Path, first_step: int
) -> Iterator[Logger]:
    """Yield the loggers that `config.report` names, in its order.

    Args:
        folder: the local directory of the run's files; `workdir`, unless that is in a
            bucket.
        first_step: the number of steps done before.
    """
    for name in dict.fromkeys(config.report):
        if name == "tensorboard":
            try:
                yield TensorBoard(folder / "tensorboard", first_step)
            except ModuleNotFoundError:  # it is the default, and no run needs it
                warn("tensorboardX is not installed: nothing is written for it.")
        elif name == "csv":
            yield CsvTable(folder)
        else:
            yield WeightsAndBiases(config, workdir)
