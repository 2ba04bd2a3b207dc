"""Open the loggers that a configuration names."""

from collections.abc import Iterator

from etils import epath

from bert_jax.config import RunConfig
from bert_jax.terminal.messages import warn
from bert_jax.training.csv_table import CsvTable
from bert_jax.training.logger import Logger
from bert_jax.training.tensorboard import TensorBoard
from bert_jax.training.weights_and_biases import WeightsAndBiases


def open_loggers(
    config: RunConfig, folder: epath.Path, first_step: int
) -> Iterator[Logger]:
    """Yield the loggers that `config.report` names, in its order.

    Args:
        folder: the local directory of the run's files.
        first_step: the number of steps done before.

    Raises:
        ModuleNotFoundError: a package is not installed; tensorboardX may be missing.
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
            yield WeightsAndBiases(config, folder)
