"""Fine-tuning as a `Task`: a `FinetuningTask` with training and validation examples."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import final

import jax
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from bert_jax.config import FinetuneConfig
from bert_jax.config.model import Params
from bert_jax.data.batches import tokenized_batches
from bert_jax.data.buckets import (
    assign_buckets,
    bucketed_batch,
    choose_bucket_boundaries,
)
from bert_jax.data.pipeline import Batch, host_slice
from bert_jax.model.bert import init_params
from bert_jax.model.contrastive import Texts
from bert_jax.model.flops import finetuning_flops
from bert_jax.tasks.distillation import DISTILLATION_LOSS, TEACHER, Teacher
from bert_jax.tasks.finetuning_task import (
    FinetuningTask,
    Predictions,
    Split,
    SplitOutputs,
    head_scores,
)
from bert_jax.tasks.lengths import row_length
from bert_jax.tasks.own_metrics import before_official
from bert_jax.tasks.task import (
    NO_WEIGHTS,
    Counts,
    DeviceBatch,
    Evaluation,
    Sums,
    Task,
)

_LABEL_LOSS = "label_loss"


def by_row(batches: Iterable[tuple[np.ndarray, PyTree]], num_rows: int) -> list[PyTree]:
    """Return the outputs of each row, in the order of the rows.

    Args:
        batches: the row numbers of each batch, and its outputs [B, …].
    """
    by_number: dict[int, PyTree] = {}
    for numbers, outputs in batches:
        for i, number in enumerate(numbers.tolist()):
            if number >= 0:  # -1 is padding
                by_number[number] = jax.tree.map(lambda x, i=i: x[i], outputs)
    assert len(by_number) == num_rows, "every row has outputs"
    return [by_number[number] for number in range(num_rows)]


@final
@dataclasses.dataclass(frozen=True)
class Finetuning(Task):
    """Training of a fine-tuning task on one host's shard of its training split.

    `config` needs `num_steps`, and `task.model` the head and labels.
    """

    task: FinetuningTask
    config: FinetuneConfig
    train: Split
    validation: Split
    host_index: int = 0
    host_count: int = 1
    own_scores: Callable[[Predictions], dict[str, float]] | None = None
    """Scores of the user's, which stand before the official ones; all processes call it
    together."""
    teacher: Teacher | None = None
    scores_start: bool = False
    """Whether to score the parameters before the first step: none is random then."""

    one_shape = False
    takes_sharded_kernels = True

    @property
    def objective(self) -> tuple[str, ...]:
        """`loss`; with a teacher, the losses that it is the sum of."""
        if self.teacher is None:
            return ("loss",)
        labels = (_LABEL_LOSS,) if self.config.distillation.label_weight else ()
        return (*labels, DISTILLATION_LOSS)

    @property
    def weights(self) -> Mapping[str, float]:
        if self.teacher is None:
            return NO_WEIGHTS
        return {_LABEL_LOSS: self.config.distillation.label_weight}

    @property
    def fixed_params(self) -> Params:
        return {} if self.teacher is None else {TEACHER: self.teacher.params}

    @functools.cached_property
    def boundaries(self) -> tuple[int, ...]:
        """The lengths to pad to; the last one holds every row of both splits."""
        data, lengths = self.config.data, self.train.tokenized.lengths
        longest = self.validation.tokenized.lengths.max(initial=int(lengths.max()))
        return choose_bucket_boundaries(
            np.append(lengths, longest),
            data.num_buckets,
            row_length(data, self.task.model),
        )

    @functools.cached_property
    def _buckets(self) -> np.ndarray:
        """The length that each training row is padded to."""
        lengths, boundaries = self.train.tokenized.lengths, self.boundaries
        return assign_buckets(lengths, boundaries[-1], boundaries)

    def _rows(self, step: int) -> tuple[int, np.ndarray]:
        """Return the padded length and the row numbers of a step, for all hosts."""
        c = self.config
        return bucketed_batch(self._buckets, c.seed, step, c.num_steps, c.batch_size)

    def init_params(self, key: Key[Array, ""]) -> Params:
        return init_params(self.task.model, key)

    def row_numbers(self, step: int) -> np.ndarray:
        numbers = self._rows(step)[1]
        # Repeated texts have the number of the text.
        repeated = self.config.data.balance
        return self.train.tokenized.example[numbers] if repeated else numbers

    def batch(self, step: int) -> Batch:
        length, numbers = self._rows(step)
        own = host_slice(self.config.batch_size, self.host_index, self.host_count)
        return self.train.tokenized.gather(numbers[own], length)

    def count(self, batch: DeviceBatch) -> Counts:
        return dict.fromkeys(self.objective, self.task.count(batch))

    def loss(self, params: Params, batch: DeviceBatch, key: Key[Array, ""]) -> Sums:
        scores = self.task.scores(params, batch, key)
        return self._losses(scores, params, batch)

    def _losses(self, scores: Array, params: Params, batch: DeviceBatch) -> Sums:
        own = self.task.loss(scores, batch)
        if self.teacher is None:
            return {"loss": own}
        c = self.config.distillation
        teacher_scores = head_scores(self.teacher.config, params[TEACHER], batch)
        total, count = self.task.distillation_loss(
            scores, teacher_scores, batch, c.temperature
        )
        return {_LABEL_LOSS: own, DISTILLATION_LOSS: (c.scores_weight * total, count)}

    @property
    def compares_rows(self) -> bool:
        return self.task.compares_rows

    def represent(
        self, params: Params, batch: DeviceBatch, key: Key[Array, ""]
    ) -> Texts:
        return Texts(self.task.scores(params, batch, key), batch["text_ids"])

    def compare(self, own: Texts, everyone: Texts, first: Int[Array, ""] | int) -> Sums:
        return self.task.compare(own, everyone, first)

    def evaluate(
        self, params: Params, batch: DeviceBatch
    ) -> tuple[Sums, dict[str, jax.Array]]:
        scores = self.task.scores(params, batch)
        outputs = self.task.outputs(scores) | {"row": batch["row"]}
        return self._losses(scores, params, batch), outputs

    def evaluation_batches(self) -> Iterator[Batch]:
        rows, boundaries = self.validation.tokenized, self.boundaries
        size = self.config.microbatch_size
        own = host_slice(size, self.host_index, self.host_count)
        return tokenized_batches(
            rows, size, boundaries[-1], boundaries, own, fixed_size=True
        )

    def score(self, evaluation: Evaluation) -> dict[str, float]:
        outputs = ((batch.pop("row"), batch) for batch in map(dict, evaluation.outputs))
        rows = by_row(outputs, len(self.validation.tokenized))
        split_outputs = SplitOutputs(self.validation, rows)
        predictions = self.task.predict(split_outputs)
        predicted = Predictions(self.validation.examples, predictions)
        own = self.own_scores(predicted) if self.own_scores else {}
        official = self.task.scores_among(split_outputs) | self.task.score(predicted)
        scores = before_official(own, official)
        # The parts of the loss stand last: the first score selects the best checkpoint.
        loss = {"loss": evaluation.means["loss"]}
        return (
            loss
            | scores
            | {k: v for k, v in evaluation.means.items() if k not in scores}
        )

    def selection_score(self, scores: dict[str, float]) -> float:
        return main_score(scores)

    def num_tokens(self, batch: Batch) -> int:
        return int(batch["end"].sum(dtype=np.int64))

    def flops(self, batch: Batch) -> float:
        flops = self.task.flops(batch)
        if self.teacher is not None:  # forward only: a third
            rows, length = batch["end"].size, batch["tokens"].shape[-1]
            flops += finetuning_flops(self.teacher.config, rows, length) / 3
        return self.host_count * flops


def main_score(scores: dict[str, float]) -> float:
    """Return the first official score, which follows the loss."""
    return scores[main_score_name(scores)]


def main_score_name(scores: Mapping[str, float]) -> str:
    """Return the name of the score that selects the best checkpoint."""
    return next(name for name in scores if name != "loss")


def without_repeats(scores: Mapping[str, float]) -> dict[str, float]:
    """Return scores to be shown: without an F1 that another name says better.

    Of two classes, `f1` is that of the second, which has `f1_NAME`; of a single type of
    entities, `f1_TYPE` is `f1`. Files and Python keep both names.
    """
    repeated = set()
    for part in ("", "before_", "test_"):
        named = [name for name in scores if name.startswith(f"{part}f1_")]
        same = [name for name in named if scores[name] == scores.get(f"{part}f1")]
        if same and f"{part}macro_f1" in scores:
            repeated.add(f"{part}f1")
        elif len(named) == 1:
            repeated.update(same)
    return {name: value for name, value in scores.items() if name not in repeated}
