"""Predictions of a fine-tuned model, for records of any number."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.finetuning import TaskName
from bert_jax.data.buckets import LENGTHS, assign_buckets
from bert_jax.data.pipeline import Batch
from bert_jax.tasks.finetuning import (
    Learning,
    Part,
    batches_of,
    by_example,
    head_scores,
)
from bert_jax.tasks.problem import Prediction, Problem, Record
from bert_jax.tasks.problems import problem_of
from bert_jax.tokenization import Tokenizer


def task_of(config: BertConfig) -> TaskName:
    """The task that a model's head is for.

    Raises:
        ValueError: the model was never fine-tuned.
    """
    if config.head == "sequence_classification":
        regression = config.problem_type == "regression"
        return "text-regression" if regression else "text-classification"
    tasks: dict[str, TaskName] = {
        "token_classification": "token-classification",
        "question_answering": "question-answering",
        "multiple_choice": "multiple-choice",
    }
    if config.head not in tasks:
        raise ValueError(
            f"The model has head={config.head}, which belongs to no task; fine-tune it "
            "by `bert-jax finetune`."
        )
    return tasks[config.head]


@functools.cache
def _compiled(config: BertConfig, task: TaskName) -> Callable[[Any, Batch], Any]:
    """Parameters, batch → what predictions are made of."""
    learning = Learning(problem_of(task), config)

    def outputs(params: Any, rows: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return learning.outputs(head_scores(config, params, rows), rows)

    return jax.jit(outputs)


def predictions_for(
    config: BertConfig,
    params: Any,
    tokenizer: Tokenizer,
    records: Sequence[Record],
    data: ExamplesConfig,
    batch_size: int = 32,
) -> list[Prediction]:
    """A prediction for each record, in their order.

    Args:
        data: as the model was fine-tuned with.
        batch_size: examples that are computed at once.
    """
    task = task_of(config)
    problem: Problem = problem_of(task)
    if not records:
        return []
    examples = problem.encode(records, tokenizer, config, data)
    longest = config.max_position_embeddings
    used = np.unique(assign_buckets(examples.lengths, longest, LENGTHS))
    # Few records make a small batch: of the next power of two.
    size = min(batch_size, 1 << (len(examples) - 1).bit_length())
    compute = _compiled(config, task)
    batches = [
        jax.device_get(compute(params, batch))
        for batch in batches_of(
            examples, size, [int(length) for length in used], slice(0, size)
        )
    ]
    part = Part(records, examples)
    found = by_example(batches, len(examples))
    return problem.predict(part.records, part.examples, found, config, data)
