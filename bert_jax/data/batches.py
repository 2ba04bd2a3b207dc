"""Batches: of a prepared dataset by step, of tokenized examples by length."""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
from jaxtyping import Int, Int64

from bert_jax.config import FinetuneConfig
from bert_jax.data.buckets import (
    assign_buckets,
    batches_by_bucket,
    bucketed_batch,
    choose_bucket_boundaries,
)
from bert_jax.data.examples import TokenizedExamples
from bert_jax.data.pipeline import Batch, host_slice, positions_of_rows, row_numbers
from bert_jax.data.records import Dataset, columns


@dataclasses.dataclass(frozen=True)
class DatasetBatches:
    """One host's training and validation batches of a prepared dataset.

    A training batch is a function of (dataset, seed, step).
    """

    dataset: Dataset
    batch_size: int
    """Rows of all hosts."""
    seed: int
    first_step: int = 0
    """The step at which the order of rows starts."""
    host_index: int = 0
    host_count: int = 1

    def row_numbers(self, step: int) -> Int64[np.ndarray, " B"]:
        """Return the row numbers of all hosts in a step."""
        first = (step - self.first_step) * self.batch_size
        positions = first + np.arange(self.batch_size)
        return row_numbers(len(self.dataset.train), self.seed, positions)

    def positions_of_rows(
        self, rows: Int[np.ndarray, " B"], epoch: int
    ) -> Int64[np.ndarray, " B"]:
        """Return where the stream of rows of all steps holds each row in an epoch."""
        return positions_of_rows(len(self.dataset.train), self.seed, rows, epoch)

    def num_epochs_of_rows(
        self, rows: Int[np.ndarray, " B"], step: int
    ) -> Int64[np.ndarray, " B"]:
        """Return in how many epochs each row is in a batch of the steps before `step`.

        A row is in one batch of an epoch.
        """
        done = max(0, step - self.first_step) * self.batch_size
        epoch = done // len(self.dataset.train)
        return epoch + (self.positions_of_rows(rows, epoch) < done)

    def place_of_row(self, row: int, epoch: int) -> tuple[int, int]:
        """Return the step that trains on a row in an epoch, and its place in the batch.

        The inverse of `row_numbers`.
        """
        (position,) = self.positions_of_rows(np.array([row]), epoch).tolist()
        step, place = divmod(position, self.batch_size)
        return self.first_step + step, place

    def training(self, step: int) -> Batch:
        """Return this host's rows of a step; `row` is the place in the global batch."""
        own = host_slice(self.batch_size, self.host_index, self.host_count)
        rows = columns(self.dataset.train.gather(self.row_numbers(step)[own]))
        return rows | {"row": np.arange(self.batch_size, dtype=np.int32)[own]}

    def validation(self, batch_size: int, max_rows: int = 0) -> Iterator[Batch]:
        """Yield this host's validation rows, each row once, in batches of one shape.

        The last batch is padded with rows without tokens, which no score counts.
        `batch_size` is the rows of all hosts; `max_rows` are yielded in all (0: any).
        """
        own = host_slice(batch_size, self.host_index, self.host_count)
        rows = self.dataset.validation
        num_rows = min(len(rows), max_rows or len(rows))
        for start in range(0, num_rows, batch_size):
            numbers = start + np.arange(batch_size)[own]
            real = numbers < num_rows
            batch = columns(rows.gather(np.where(real, numbers, 0)))
            batch["end"][~real] = 0
            batch["next_sentence_label"][~real] = -1
            yield batch | {"row": numbers.astype(np.int32)}


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

    def longest(self) -> Batch:
        """Return a batch of all hosts that takes the most: of the longest row alone."""
        numbers = np.full(self.config.batch_size, self.train.lengths.argmax())
        return self.train.gather(numbers, int(self._padded_lengths.max()))

    def validation(self) -> Iterator[Batch]:
        """Yield this host's validation rows, each row once, in batches of one size."""
        rows, size = self.validation_rows, self.config.microbatch_size
        own = host_slice(size, self.host_index, self.host_count)
        buckets = assign_buckets(rows.lengths, self.boundaries[-1], self.boundaries)
        for length, chosen in batches_by_bucket(buckets, size):
            numbers = np.pad(chosen, (0, size - len(chosen)), constant_values=-1)
            yield rows.gather(numbers[own], length)


def tokenized_batches(
    tokenized: TokenizedExamples, batch_size: int, longest: int, most_tokens: int = 0
) -> Iterator[Batch]:
    """Yield every row once, in batches of few shapes; index -1 is padding.

    A row is padded by its own length alone, so that its scores do not depend on the
    batch size. The model takes rows of `longest` tokens; a batch has `most_tokens` at
    most, padding included (0: any number).
    """
    buckets = assign_buckets(tokenized.lengths, longest)
    most_tokens //= tokenized.choices
    for length, chosen in batches_by_bucket(buckets, batch_size, most_tokens):
        power_of_two = 1 << (len(chosen) - 1).bit_length()
        size = min(batch_size, power_of_two)
        numbers = np.pad(chosen, (0, size - len(chosen)), constant_values=-1)
        yield tokenized.gather(numbers, length)
