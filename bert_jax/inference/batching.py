"""The one batcher of inference: rows of any length through compiled programs."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from bert_jax.config import BertConfig
from bert_jax.config.model import Params
from bert_jax.data.batches import tokenized_batches
from bert_jax.data.examples import TokenizedExamples, build_row, from_rows
from bert_jax.data.pipeline import Batch
from bert_jax.model.bert import compute
from bert_jax.model.inputs import inputs_of_tokenized
from bert_jax.tasks.task import DeviceBatch
from bert_jax.tokenization import Tokenizer

Program = Callable[[Params, Batch], PyTree]
"""Parameters, batch → arrays whose first axis is the row; compiled for few shapes."""


@functools.cache
def compiled(config: BertConfig, method: str, **options: Any) -> Program:
    """Return a method of `Bert` as a program; the same one for the same arguments."""

    def program(params: Params, batch: DeviceBatch) -> PyTree:
        inputs = inputs_of_tokenized(batch)
        return compute(config, params, method, inputs, **options)

    return jax.jit(program)


@functools.cache
def compiled_fill(config: BertConfig, mask_id: int) -> Program:
    """Return the program of the probabilities at each row's only mask: [B, V]."""

    def program(params: Params, batch: DeviceBatch) -> PyTree:
        inputs = inputs_of_tokenized(batch)
        position = (inputs.input_ids == mask_id).argmax(axis=1)
        return compute(config, params, "fill", inputs, position[:, None])[:, 0]

    return jax.jit(program)


def rows_of(
    tokenizer: Tokenizer,
    config: BertConfig,
    texts: Sequence[tuple[Sequence[int], ...]],
    what: str = "text",
    first: int = 0,
) -> TokenizedExamples:
    """Return a row [CLS] A [SEP] or [CLS] A [SEP] B [SEP] for the ids of each text.

    Args:
        what: the word for a text in error messages.
        first: the number of the first text in error messages.

    Raises:
        ValueError: a row is longer than the model takes.
    """
    rows: list[tuple[list[int], int]] = []
    for number, segments in enumerate(texts, first):
        ids, second = build_row(tokenizer, *segments)
        if len(ids) > config.max_position_embeddings:
            raise ValueError(
                f"{what} {number} has {len(ids)} tokens, [CLS] and [SEP] included; the "
                f"model takes {config.max_position_embeddings}. Shorten it."
            )
        rows.append((ids, second))
    return from_rows(rows, np.arange(len(rows), dtype=np.int32))


def compute_rows(
    program: Program,
    params: Params,
    tokenized: TokenizedExamples,
    config: BertConfig,
    batch_size: int,
) -> Iterator[tuple[int, PyTree]]:
    """Yield the index of each row, and what `program` computes for it, as NumPy arrays.

    Rows are batched by length, so they are not yielded in their own order.
    """
    longest = config.max_position_embeddings
    for batch in tokenized_batches(tokenized, batch_size, longest):
        outputs = jax.device_get(program(params, batch))
        for i, row in enumerate(batch["row"].tolist()):
            if row >= 0:  # -1 is padding
                yield row, jax.tree.map(lambda values, i=i: values[i], outputs)
