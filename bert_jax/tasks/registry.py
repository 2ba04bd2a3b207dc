"""Every fine-tuning task by its name."""

import dataclasses

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.finetuning import TaskName
from bert_jax.tasks.class_names import renamed_labels
from bert_jax.tasks.finetuning_task import FinetuningTask
from bert_jax.tasks.multiple_choice import MultipleChoiceTask
from bert_jax.tasks.ner import TokenClassificationTask
from bert_jax.tasks.pair_ranking import PairRankingTask
from bert_jax.tasks.sentence_pairs import SentencePairsTask
from bert_jax.tasks.squad import QuestionAnsweringTask
from bert_jax.tasks.text_classification import TextTask

_TASKS: dict[TaskName, type[FinetuningTask]] = {
    "token-classification": TokenClassificationTask,
    "question-answering": QuestionAnsweringTask,
    "multiple-choice": MultipleChoiceTask,
    "sentence-pairs": SentencePairsTask,
}
"""The tasks that have a head of their own."""


def finetuning_task(
    name: TaskName, data: ExamplesConfig, model: BertConfig | None = None
) -> FinetuningTask:
    """Return the task `name`.

    Args:
        model: with the task's head and labels; None: not known yet.
    """
    model = BertConfig() if model is None else model
    if data.label_names and model.labels:
        labels = renamed_labels(model.labels, data.label_names)
        model = dataclasses.replace(model, labels=labels)
    if name == "sentence-pairs" and data.sentence_pairs.objective == "rank":
        return PairRankingTask(data, model)
    if name in _TASKS:
        return _TASKS[name](data, model)
    return TextTask(data, model, is_regression=name == "text-regression")


def task_name_of(model: BertConfig, data: ExamplesConfig | None = None) -> TaskName:
    """Return the name of the task that a model's head is for.

    Args:
        data: of its fine-tuning; None: not known, and then a score of two texts is a
            number like any other.

    Raises:
        ValueError: the model was never fine-tuned.
    """
    if model.head == TextTask.head:
        if data is not None and data.sentence_pairs.objective == "rank":
            return "sentence-pairs"
        regression = model.problem_type == "regression"
        return "text-regression" if regression else "text-classification"
    for name, task in _TASKS.items():
        if model.head == task.head:
            return name
    raise ValueError(
        f"The model has head={model.head}, which belongs to no task; fine-tune it "
        "by `bert-jax finetune`."
    )
