"""The one batcher of inference: rows of any length through compiled programs."""

import collections
import dataclasses
import functools
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from bert_jax.config import BertConfig
from bert_jax.config.checks import require
from bert_jax.config.model import Params
from bert_jax.data.batches import tokenized_batches
from bert_jax.data.examples import (
    TokenizedExamples,
    build_row,
    from_rows,
    join_pair,
    num_cut,
)
from bert_jax.data.pipeline import Batch
from bert_jax.data.text_report import TextReport
from bert_jax.inference.arguments import require_count, require_texts_or_pairs
from bert_jax.model.bert import compute, layer_attention
from bert_jax.model.finite import nonfinite_names
from bert_jax.model.inputs import Inputs, inputs_of_tokenized
from bert_jax.model.layers import target_device
from bert_jax.pretrained import Model
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Example, Prediction, Split, SplitOutputs, by_row
from bert_jax.tasks.task import DeviceBatch
from bert_jax.terminal.messages import warn
from bert_jax.terminal.processes import num_cores
from bert_jax.terminal.progress import Progress, tell_terminal
from bert_jax.tokenization import Tokenizer

_CPU_THREADS = 2
"""Batches that a CPU computes at once: some parts of a program use one core only."""
_CPU_TOKENS = 1024
"""Tokens of a batch on a CPU, whose cache must hold the activations of a layer:
MiniLM-6 on two cores, 54 texts/s of 128 tokens with 1,024 in a batch, 43 with 4,096."""

Program = Callable[[Params, Batch], PyTree]
"""Parameters, batch → arrays whose first axis is the row; compiled for few shapes."""


@functools.cache
def compiled(config: BertConfig, method: str, **options: Any) -> Program:
    """Return a method of `Bert` as a program; the same one for the same arguments."""

    def program(params: Params, batch: DeviceBatch) -> PyTree:
        inputs = inputs_of_tokenized(batch)
        return compute(config, params, method, inputs, **options)

    return jax.jit(program)


@functools.partial(jax.jit, static_argnums=0)
def attention_of(config: BertConfig, params: Params, batch: DeviceBatch) -> jax.Array:
    """Return the attention probabilities of a batch, [B, L, N, T, T]."""
    return layer_attention(config, params, inputs_of_tokenized(batch))


@functools.partial(jax.jit, static_argnums=0)
def outputs_of(
    task: FinetuningTask, params: Params, batch: DeviceBatch
) -> dict[str, jax.Array]:
    """Return a task's outputs for a batch; the task is from `for_program`."""
    return task.outputs(task.scores(params, batch))


def numbered(what: str = "text", first: int = 0) -> Iterator[str]:
    """Yield names of texts for messages, without an end: text 0, text 1 and so on."""
    return (f"{what} {number}" for number in itertools.count(first))


def rows_of(
    model: Model,
    texts: Sequence[tuple[Sequence[int], ...]],
    names: Iterable[str] | None = None,
) -> TokenizedExamples:
    """Return a row [CLS] A [SEP] or [CLS] A [SEP] B [SEP] for the ids of each text.

    Raise ValueError if the model takes no row so long; its message calls the texts by
    their `names`.
    """
    most = model.config.max_position_embeddings
    rows: list[tuple[list[int], int]] = []
    for segments, name in zip(texts, names or numbered(), strict=False):
        ids, second = build_row(model.tokenizer, *segments)
        if len(ids) > most:
            raise ValueError(
                f"{name} has {len(ids)} tokens, [CLS] and [SEP] included; the "
                f"model takes {most}. Shorten it."
            )
        rows.append((ids, second))
    longest = max((len(ids) for ids, _ in rows), default=0)
    warn_untrained_positions(longest, model.trained_length)
    return from_rows(rows)


def text_inputs(
    tokenizer: Tokenizer, texts: Sequence[str | tuple[str, str]], length: int
) -> Inputs:
    """Return a row of `length` tokens for each text or pair of texts.

    A row is [CLS] A [SEP], or [CLS] A [SEP] B [SEP] with segment 1 from B on; longer
    texts are truncated, of a pair the longer one first, and shorter rows are padded
    with the id of [PAD]. Names of special tokens in a text are plain text.

    Args:
        length: T; at most the model's `max_position_embeddings`.

    Returns:
        int32 `input_ids` and `segment_ids`, and boolean `attention_mask`, each [B, T].

    Raises:
        ValueError: there is no text, some are pairs and others not, or `length` is less
            than 8.
    """
    parts = require_texts_or_pairs("texts", texts)
    require(bool(parts), "texts is empty; give at least one.")
    is_whole = isinstance(length, int | np.integer) and length >= 8
    require(is_whole, f"length={length!r:.80} must be at least 8, and a whole number.")
    columns = [tokenizer.encode_each(column) for column in zip(*parts, strict=True)]
    rows = [
        join_pair(tokenizer, *segments, max_length=length)
        for segments in zip(*columns, strict=True)
    ]
    numbers = np.arange(len(rows), dtype=np.int32)
    inputs = inputs_of_tokenized(from_rows(rows, numbers).gather(numbers, length))
    ids = jnp.where(inputs.attention_mask, inputs.input_ids, tokenizer.pad_id)
    return dataclasses.replace(inputs, input_ids=ids)


def warn_untrained_positions(num_tokens: int, trained_length: int) -> None:
    """Warn if a row is longer than those of the last pretraining run; 0: unknown."""
    if 0 < trained_length < num_tokens:
        warnings.warn(
            f"A text is longer than {trained_length} tokens, the rows that the model "
            "was last pretrained on: it has later positions, but they were not trained "
            "there, and what it computes for them may be wrong. Shorten the text.",
            stacklevel=2,
        )


def compute_rows(
    program: Program,
    model: Model,
    tokenized: TokenizedExamples,
    batch_size: int,
    advance: Callable[[int], None] = lambda _: None,
) -> list[PyTree]:
    """Return what `program` computes for each row, as finite NumPy arrays, in order.

    `advance` is called with the number of rows that are done since the last call.
    """
    longest = model.config.max_position_embeddings
    is_cpu = target_device().platform == "cpu"
    most_tokens = _CPU_TOKENS if is_cpu else 0
    batches = tokenized_batches(tokenized, batch_size, longest, most_tokens=most_tokens)

    def compute_batch(batch: Batch) -> tuple[np.ndarray, PyTree]:
        values = jax.device_get(program(model.params, jax.device_put(batch)))
        message = "what the model computes is not finite: its training has diverged; "
        require(not nonfinite_names(values), f"{message}name an earlier checkpoint.")
        return batch["row"], values

    def counted(
        outputs: Iterator[tuple[np.ndarray, PyTree]],
    ) -> Iterator[tuple[np.ndarray, PyTree]]:
        for rows, values in outputs:
            yield rows, values
            advance(int((rows >= 0).sum()))

    # Settings of a `with` block, such as the precision of products, are not seen by
    # other threads; on a CPU they do not change what is computed.
    threads = min(_CPU_THREADS, num_cores()) if is_cpu else 1
    outputs: Iterator[tuple[np.ndarray, PyTree]] = map(compute_batch, batches)
    if threads > 1:
        outputs = _map_in_threads(compute_batch, batches, threads)
    return by_row(counted(outputs), len(tokenized))


def _map_in_threads(
    compute_batch: Callable[[Batch], tuple[np.ndarray, PyTree]],
    batches: Iterator[Batch],
    threads: int,
) -> Iterator[tuple[np.ndarray, PyTree]]:
    """Yield the result of each batch, in order, and compute the next ones meanwhile.

    The first batch of each shape is computed alone, so that a program is compiled once.
    """
    shapes: set[tuple[int, ...]] = set()
    pending: collections.deque[Future[tuple[np.ndarray, PyTree]]] = collections.deque()
    with ThreadPoolExecutor(threads) as executor:
        for batch in batches:
            pending.append(executor.submit(compute_batch, batch))
            if (shape := batch["tokens"].shape) not in shapes:
                shapes.add(shape)
                pending[-1].result()
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def compute_texts(
    program: Program,
    model: Model,
    segments: Sequence[tuple[Sequence[int], ...]],
    batch_size: int,
    first: int = 0,
) -> list[PyTree]:
    """Return what `program` computes for the ids of each text or pair, in their order.

    Messages count texts from `first`.
    """
    require_count("batch_size", batch_size)
    if not segments:
        return []
    rows = rows_of(model, segments, numbered(first=first))
    return compute_rows(program, model, rows, batch_size)


def example_outputs(
    task: FinetuningTask,
    model: Model,
    examples: Sequence[Example],
    batch_size: int,
    shows_progress: bool = False,
) -> SplitOutputs:
    """Return what the model computes for examples, of which there is at least one."""
    tokenized = task.tokenize(examples, model.tokenizer)
    program = functools.partial(outputs_of, task.for_program())
    progress = Progress("rows", len(tokenized), tell_terminal)
    advance = progress.advance if shows_progress else lambda _: None
    rows = compute_rows(program, model, tokenized, batch_size, advance)
    return SplitOutputs(Split(examples, tokenized), rows)


def predict_examples(
    task: FinetuningTask, model: Model, examples: Sequence[Example], batch_size: int
) -> list[Prediction]:
    """Return a prediction for each example, in their order; warn of cut ones."""
    if not examples:
        return []
    outputs = example_outputs(task, model, examples, batch_size)
    for line in task.cut_warnings(num_cut(outputs.split.tokenized), len(examples)):
        warn(line)
    return task.predict(outputs)


class Unread:
    """Counts what a model does not read of examples: what is cut, and [UNK]."""

    def __init__(self, task: FinetuningTask, tokenizer: Tokenizer) -> None:
        self._task, self._tokenizer = task, tokenizer
        self._num_cut = self._num_examples = 0
        self._report = TextReport()

    def add(self, split: Split) -> None:
        tokenized = split.tokenized
        self._num_cut += num_cut(tokenized)
        self._num_examples += len(split.examples)
        tokens, starts = tokenized.tokens, tokenized.starts
        counted = ~np.isin(tokens, [self._tokenizer.cls_id, self._tokenizer.sep_id])
        unknown = np.flatnonzero(tokens == self._tokenizer.unk_id)
        for row in np.unique(np.searchsorted(starts, unknown, "right") - 1):
            span = slice(starts[row], starts[row + 1])
            example = split.examples[tokenized.example[row // tokenized.choices]]
            text = "\n".join(self._task.texts(example))
            ids = tokens[span][counted[span]].tolist()
            self._report.add_unknown(self._tokenizer, text, ids)
            counted[span] = False
        self._report.text["tokens"] += int(counted.sum())

    def warn(self, name: str) -> None:
        """Warn of it, as training does; `name` is of the file."""
        cut = self._task.cut_warnings(self._num_cut, self._num_examples)
        unknown = self._report.warnings("use a model whose vocabulary has them")
        for line in cut + unknown:
            warn(f"{name}: {line}")
