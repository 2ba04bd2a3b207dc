"""The interface between the training loop and anything that can be trained."""

import abc
import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from bert_jax.config import BertConfig
from bert_jax.config.checks import require
from bert_jax.config.model import Params
from bert_jax.data.batches import DatasetBatches
from bert_jax.data.pipeline import Batch
from bert_jax.model.attention import chosen_kernel
from bert_jax.model.contrastive import Texts
from bert_jax.model.losses import Sum

DeviceBatch = dict[str, jax.Array]
"""A batch on the device; the first axis of every array is the row."""
Sums = dict[str, Sum]
"""Totals and counts by name."""
Counts = dict[str, Float[Array, ""]]
NO_WEIGHTS: Mapping[str, float] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The means and outputs of the validation rows."""

    means: dict[str, float]
    """The mean of each of the sums of `Task.evaluate`, and `loss`."""
    outputs: list[Batch]
    """The outputs of `Task.evaluate` for each batch."""


class Task(abc.ABC):
    """Batches, and what is computed from them. No task calls jit or names a mesh.

    The loop minimises the sum of the means of `objective`, over the global batch, each
    times its factor in `weights`.
    """

    one_shape: bool = True
    """Whether all training batches have the same shape."""
    takes_sharded_kernels: bool = False
    """Whether `loss` and `evaluate` give kernels to modules of `Bert` alone. With fsdp,
    each is then gathered where it is used; else all are gathered before `loss`, and
    stay in memory for the whole step."""
    batches: DatasetBatches
    """The batches of a task on a prepared dataset. A task without it overrides
    `row_numbers`, `batch`, `evaluation_batches` and `num_tokens`."""

    @property
    @abc.abstractmethod
    def objective(self) -> tuple[str, ...]:
        """The names of the sums of `loss` whose means are minimised."""

    @property
    def weights(self) -> Mapping[str, float]:
        """The factors of the means of `objective`; a name that is missing has 1."""
        return NO_WEIGHTS

    @property
    def scores_start(self) -> bool:
        """Whether a new run scores its parameters before the first step."""
        return False

    @property
    def fixed_params(self) -> Params:
        """Parameters that are read and never trained, such as a teacher's.

        `loss` and `evaluate` get them beside those that are trained. They are sharded
        by the same table, and are in no checkpoint.
        """
        return {}

    @abc.abstractmethod
    def init_params(self, key: Key[Array, ""]) -> Params:
        """Draw the parameters."""

    def row_numbers(self, step: int) -> np.ndarray:
        """Return the row numbers that all hosts train on in a step."""
        return self.batches.row_numbers(step)

    def batch(self, step: int) -> Batch:
        """Return this host's shard of the rows of a step."""
        return self.batches.training(step)

    def corrupt(self, batch: DeviceBatch, key: Key[Array, ""]) -> PyTree:
        """Apply the step's random masking; a no-op unless a task overrides it.

        Each device calls it for its own rows, so that a row's result must not depend on
        the others. The first axis of every array returned is the row.
        """
        return batch

    def corrupt_at_step(
        self, batch: DeviceBatch, key: Key[Array, ""], step: Int[Array, ""]
    ) -> PyTree:
        """Apply the random masking of a training step: by default `corrupt`.

        A task overrides it if more than the key differs from step to step. `step` is
        the number of steps done before.
        """
        return self.corrupt(batch, key)

    @abc.abstractmethod
    def count(self, batch: PyTree) -> Counts:
        """Return the count of each name of `objective` in a batch from `corrupt`.

        The gradient divides the sums of `loss` by the counts of the global batch.
        """

    @abc.abstractmethod
    def loss(self, params: Params, batch: PyTree, key: Key[Array, ""]) -> Sums:
        """Return sums over a batch from `corrupt`, or a part of it, with dropout."""

    @abc.abstractmethod
    def evaluate(
        self, params: Params, batch: DeviceBatch
    ) -> tuple[Sums, dict[str, jax.Array]]:
        """Return sums over validation rows, and the outputs that `score` needs.

        There is no dropout and no random masking. The first axis of every output is the
        row; {} if `score` needs none.
        """

    def evaluation_batches(self) -> Iterator[Batch]:
        """Yield this host's shard of the validation rows, each row once."""
        return self.batches.validation(self.batches.batch_size)

    def score(self, evaluation: Evaluation) -> dict[str, float]:
        """Return the scores to report; by default the means."""
        return evaluation.means

    def selection_score(self, scores: dict[str, float]) -> float:
        """Return the number that is highest at the best step; default: minus loss."""
        require(
            "loss" in scores,
            f"{type(self).__name__}.score returns {', '.join(scores)} and not loss, by "
            "which the best step is chosen; add it, or override selection_score.",
        )
        return -scores["loss"]

    def num_tokens(self, batch: Batch) -> int:
        """Return the number of real tokens of a batch, without padding."""
        return int(batch["end"].max(axis=1).sum(dtype=np.int64))

    def flops(self, batch: Batch) -> float:
        """Return the model FLOPs of a step on all hosts, by one's shard; 0: unknown."""
        return 0.0


class ComparedTask(Task):
    """A task whose loss compares each row with all others of the global batch.

    In training, `represent` and `compare` take the place of `loss`.
    """

    @abc.abstractmethod
    def represent(self, params: Params, batch: PyTree, key: Key[Array, ""]) -> Texts:
        """Return what `compare` compares of some rows, with dropout."""

    @abc.abstractmethod
    def compare(self, own: Texts, everyone: Texts, first: Int[Array, ""] | int) -> Sums:
        """Return sums over some rows, each compared with all of the global batch.

        Args:
            first: the row of `everyone` that is the first of `own`.
        """


def check_attention_kernel(config: BertConfig, length: int) -> None:
    """Raise ValueError unless the attention kernel can train on rows of `length`."""
    chosen_kernel(config, length, deterministic=False)
