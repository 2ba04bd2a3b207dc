"""Fine-tuning on any problem: its examples and its head as a `Task`."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from bert_jax.config import BertConfig, FinetuneConfig
from bert_jax.data.buckets import (
    assign_buckets,
    batches_by_bucket,
    bucketed_batch,
    choose_bucket_boundaries,
)
from bert_jax.data.examples import Batch, Examples
from bert_jax.data.pipeline import host_slice
from bert_jax.model.finetuning import BertForFinetuning
from bert_jax.model.flops import finetuning_flops
from bert_jax.model.inputs import inputs_of
from bert_jax.tasks.problem import Outputs, Prediction, Problem, Record, Rows
from bert_jax.tasks.task import Counts, Sums, Task


@dataclasses.dataclass(frozen=True)
class Part:
    """The records of a file, and their examples."""

    records: Sequence[Record]
    examples: Examples


def initial_params(config: BertConfig, key: Key[Array, ""]) -> Any:
    """Parameters drawn by `key`; their shapes do not depend on the inputs'."""
    one = jnp.zeros((1, 8), jnp.int32)
    return BertForFinetuning(config).init(key, one, one, one > 0)["params"]


def head_scores(config: BertConfig, params: Any, rows: Rows, **dropout: Any) -> Array:
    """The head's float32 scores of a batch that `Examples.gather` made.

    Returns:
        [B, C] of texts, [B, T, C] of tokens, [B, C] of choices.
    """
    tokens = rows["tokens"]
    flat = tokens.reshape(-1, tokens.shape[-1])
    second, end = rows["second"].reshape(-1, 1), rows["end"].reshape(-1, 1)
    inputs = inputs_of(
        {"tokens": flat, "first": jnp.zeros_like(end), "second": second, "end": end}
    )
    scores: Any = BertForFinetuning(config).apply(
        {"params": params},
        inputs.input_ids,
        inputs.segment_ids,
        inputs.attention_mask,
        **dropout,
    )
    return scores[:, 0].reshape(tokens.shape[:2]) if tokens.ndim == 3 else scores


@dataclasses.dataclass(frozen=True)
class Learning:
    """What the device does with a batch of a problem's examples."""

    problem: Problem
    config: BertConfig

    def draw(
        self, rows: dict[str, Array], key: Key[Array, ""]
    ) -> tuple[dict[str, Array], Counts]:
        """The rows as they are, nothing being left to chance, and their number."""
        scores = jax.eval_shape(
            lambda params: head_scores(self.config, params, rows),
            jax.eval_shape(functools.partial(initial_params, self.config), key),
        )
        # The count depends on the labels alone.
        _, count = self.problem.loss(self.config, jnp.zeros(scores.shape), rows)
        return rows, {"loss": count}

    def loss(self, params: Any, rows: Rows, key: Key[Array, ""]) -> Sums:
        """The sum over rows, with dropout by `key`."""
        dropout = {"deterministic": False, "rngs": {"dropout": key}}
        scores = head_scores(self.config, params, rows, **dropout)
        return {"loss": self.problem.loss(self.config, scores, rows)}

    def evaluate(
        self, params: Any, rows: dict[str, Array]
    ) -> tuple[Sums, dict[str, Array]]:
        """The sum over rows without dropout, and what predictions are made of."""
        scores = head_scores(self.config, params, rows)
        outputs = self.outputs(scores, rows)
        return {"loss": self.problem.loss(self.config, scores, rows)}, outputs

    def outputs(self, scores: Array, rows: Rows) -> dict[str, Array]:
        """What predictions are made of, with the number of each row's example."""
        found = self.problem.outputs(self.config, scores, rows)
        return found | {"row": rows["row"]}


def by_example(batches: Sequence[Batch], number: int) -> list[Outputs]:
    """The outputs of each example, in the examples' order."""
    found: list[Outputs] = [{} for _ in range(number)]
    for batch in batches:
        for place, row in enumerate(batch["row"]):
            if row >= 0:
                found[row] = {
                    name: values[place]
                    for name, values in batch.items()
                    if name != "row"
                }
    assert all(found), "every example has outputs"
    return found


def batches_of(
    examples: Examples, batch_size: int, ladder: Sequence[int], share: slice
) -> Iterator[Batch]:
    """Every example once, in batches of few shapes; the rest of the last is nobody.

    How an example is padded depends on its own length alone, so that its scores do not
    depend on the batch size.

    Args:
        share: of each batch, what this host computes.
    """
    buckets = assign_buckets(examples.lengths, ladder[-1], ladder)
    for length, chosen in batches_by_bucket(buckets, batch_size):
        numbers = np.full(batch_size, -1, np.int64)
        numbers[: len(chosen)] = chosen
        yield examples.gather(numbers[share], length)


@dataclasses.dataclass(frozen=True)
class Order:
    """Which training examples each step learns from, and how they are padded."""

    examples: Examples
    config: FinetuneConfig
    ladder: tuple[int, ...]
    """The lengths to pad to."""
    share: slice
    """Of each batch, what this host reads."""

    @functools.cached_property
    def buckets(self) -> np.ndarray:
        """The length that each example is padded to."""
        return assign_buckets(self.examples.lengths, self.ladder[-1], self.ladder)

    def chosen(self, step: int) -> tuple[int, np.ndarray]:
        """The padded length, and the numbers of all hosts' examples."""
        c = self.config
        return bucketed_batch(self.buckets, c.seed, step, c.num_steps, c.batch_size)

    def batch(self, step: int) -> Batch:
        """This host's examples of a step."""
        length, numbers = self.chosen(step)
        return self.examples.gather(numbers[self.share], length)


def finetuning_task(
    problem: Problem,
    config: FinetuneConfig,
    train: Part,
    validation: Part,
    host_index: int = 0,
    host_count: int = 1,
) -> Task:
    """Fine-tuning on the examples of two files.

    Args:
        config: with the model's head and classes, and `num_steps`, set.
    """
    learning, data = Learning(problem, config.model), config.data
    share = host_slice(config.batch_size, host_index, host_count)
    at_once = config.microbatch_size
    part = host_slice(at_once, host_index, host_count)
    lengths = train.examples.lengths
    most = max(int(lengths.max()), int(validation.examples.lengths.max(initial=0)))
    ladder = choose_bucket_boundaries(
        np.append(lengths, most), data.num_buckets, data.max_length
    )
    order = Order(train.examples, config, ladder, share)

    def score(means: dict[str, float], outputs: list[Batch]) -> dict[str, float]:
        found = predictions(problem, config, validation, outputs)
        return means | problem.score(validation.records, found, config.model, data)

    return Task(
        initialise=functools.partial(initial_params, config.model),
        batch=order.batch,
        examples=lambda step: order.chosen(step)[1],
        draw=learning.draw,
        loss=learning.loss,
        evaluate=learning.evaluate,
        evaluation_batches=functools.partial(
            batches_of, validation.examples, at_once, ladder, part
        ),
        score=score,
        selection_score=main_score,
        objective=("loss",),
        tokens=lambda rows: int(rows["end"].sum(dtype=np.int64)),
        flops=lambda rows: host_count * flops_of(config.model, rows),
        one_shape=False,
    )


def flops_of(config: BertConfig, rows: Batch) -> float:
    """Model FLOPs of a training step on a batch."""
    return finetuning_flops(config, rows["end"].size, rows["tokens"].shape[-1])


def main_score(scores: dict[str, float]) -> float:
    """The first of the official scores, which stand after the loss."""
    return next(value for name, value in scores.items() if name != "loss")


def predictions(
    problem: Problem, config: FinetuneConfig, part: Part, outputs: Sequence[Batch]
) -> list[Prediction]:
    """A prediction for each record, of what was computed of its examples."""
    found = by_example(outputs, len(part.examples))
    return problem.predict(
        part.records, part.examples, found, config.model, config.data
    )
