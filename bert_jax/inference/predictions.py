"""Predictions of a fine-tuned model for any number of examples."""

import functools
from collections.abc import Sequence

import jax

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.model import Params
from bert_jax.inference.batching import Program, compute_rows
from bert_jax.tasks.finetuning import head_scores
from bert_jax.tasks.finetuning_task import (
    Example,
    FinetuningTask,
    Prediction,
    Split,
    SplitOutputs,
)
from bert_jax.tasks.task import DeviceBatch
from bert_jax.tokenization import Tokenizer


@functools.cache
def _compiled(task_class: type[FinetuningTask], model: BertConfig) -> Program:
    task = task_class(ExamplesConfig(), model)  # `outputs` depends on the model alone

    def program(params: Params, batch: DeviceBatch) -> dict[str, jax.Array]:
        return task.outputs(head_scores(model, params, batch))

    return jax.jit(program)


def predict_examples(
    task: FinetuningTask,
    params: Params,
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    batch_size: int = 32,
) -> list[Prediction]:
    """Return a prediction for each example, in their order.

    Args:
        batch_size: rows that are computed at once.
    """
    if not examples:
        return []
    tokenized = task.tokenize(examples, tokenizer)
    program = _compiled(type(task), task.model)
    rows = compute_rows(program, params, tokenized, task.model, batch_size)
    return task.predict(SplitOutputs(Split(examples, tokenized), rows))
