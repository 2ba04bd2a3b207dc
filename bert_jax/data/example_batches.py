"""Batches of tokenized examples, each padded to one of a few lengths."""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
from jaxtyping import Int

from bert_jax.config import FinetuneConfig
from bert_jax.data.buckets import (
    assign_buckets,
    batches_by_bucket,
    bucketed_batch,
    choose_bucket_boundaries,
)
from bert_jax.data.examples import TokenizedExamples
from bert_jax.data.pipeline import Batch, host_slice


@dataclasses.dataclass(frozen=True, eq=False)
class ExampleBatches:
    """One host's training and validation batches of a fine-tuning run.

    A training batch is a function of (examples, seed, step).
    """

    config: FinetuneConfig
    """With `num_steps`."""
    train: TokenizedExamples
    validation_rows: TokenizedExamples
    max_length: int
    """The most tokens of a row."""
    host_index: int = 0
    host_count: int = 1

    @functools.cached_property
    def boundaries(self) -> tuple[int, ...]:
        """The lengths to pad to; the last one holds every row of both splits."""
        lengths = self.train.lengths
        longest = self.validation_rows.lengths.max(initial=int(lengths.max()))
        return choose_bucket_boundaries(
            np.append(lengths, longest), self.config.data.num_buckets, self.max_length
        )

    @functools.cached_property
    def _padded_lengths(self) -> Int[np.ndarray, " N"]:
        """The length that each training row is padded to."""
        boundaries = self.boundaries
        return assign_buckets(self.train.lengths, boundaries[-1], boundaries)

    def _rows(self, step: int) -> tuple[int, Int[np.ndarray, " B"]]:
        """Return the padded length and the row numbers of a step, for all hosts."""
        c, lengths = self.config, self._padded_lengths
        return bucketed_batch(lengths, c.seed, step, c.num_steps, c.batch_size)

    def row_numbers(self, step: int) -> Int[np.ndarray, " B"]:
        """Return the row numbers of all hosts; a repeated text has that of the text."""
        numbers = self._rows(step)[1]
        return self.train.example[numbers] if self.config.data.balance else numbers

    def training(self, step: int) -> Batch:
        """Return this host's rows of a step."""
        length, numbers = self._rows(step)
        own = host_slice(self.config.batch_size, self.host_index, self.host_count)
        return self.train.gather(numbers[own], length)

    def validation(self) -> Iterator[Batch]:
        """Yield this host's validation rows, each row once, in batches of one size."""
        rows, size = self.validation_rows, self.config.microbatch_size
        own = host_slice(size, self.host_index, self.host_count)
        buckets = assign_buckets(rows.lengths, self.boundaries[-1], self.boundaries)
        for length, chosen in batches_by_bucket(buckets, size):
            numbers = np.pad(chosen, (0, size - len(chosen)), constant_values=-1)
            yield rows.gather(numbers[own], length)
