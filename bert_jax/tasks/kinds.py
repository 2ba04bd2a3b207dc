"""Every kind of fine-tuning, by its name and by its head."""

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.checks import require
from bert_jax.config.finetuning import TaskName
from bert_jax.tasks.answers.task import QuestionAnsweringTask
from bert_jax.tasks.choices.task import MultipleChoiceTask
from bert_jax.tasks.class_names import named_as
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.pairs.ranking import PairRankingTask
from bert_jax.tasks.pairs.vectors import ContrastivePairsTask, ScoredPairsTask
from bert_jax.tasks.tagging.task import TokenClassificationTask
from bert_jax.tasks.texts.classes import ClassesTask, ClassTask
from bert_jax.tasks.texts.numbers import NumberTask

KINDS: list[type[FinetuningTask]] = [
    ContrastivePairsTask,
    ScoredPairsTask,
    PairRankingTask,
    NumberTask,
    ClassTask,
    ClassesTask,
    TokenClassificationTask,
    QuestionAnsweringTask,
    MultipleChoiceTask,
]
"""Of several that suit a model, the first is its kind."""


def finetuning_task(
    name: TaskName, data: ExamplesConfig, model: BertConfig | None = None
) -> FinetuningTask:
    """Return the task `name`.

    Args:
        model: with the task's head and labels; None: not known yet.
    """
    kind = next(k for k in KINDS if k.name == name and k.suits(data, model))
    if model is None:
        return kind(data)
    return kind(data, named_as(model, data) if model.labels else model)


def task_name_of(model: BertConfig, data: ExamplesConfig | None = None) -> TaskName:
    """Return the name of the task that a model's head is for.

    Args:
        data: of its fine-tuning; None: not known, and then a score of two texts is a
            number like any other.

    Raises:
        ValueError: the model was never fine-tuned, or not for these settings.
    """
    data = ExamplesConfig() if data is None else data
    require(
        not data.multi_label
        or (ClassesTask.head, ClassesTask.problem_type)
        == (model.head, model.problem_type),
        f"data.multi_label and several label columns are of another kind of model: "
        f"this one has problem_type={model.problem_type}. Name one --label-column, "
        "and leave --data.multi-label out.",
    )
    for kind in KINDS:
        if kind.head == model.head and kind.suits(data, model):
            return kind.name
    objective = data.sentence_pairs.objective
    require(
        all(kind.head != model.head for kind in KINDS),
        f"data.sentence_pairs.objective={objective} is of another head than that of "
        f"the model, {model.head}; leave it out.",
    )
    raise ValueError(
        f"The model has head={model.head}, which belongs to no task; fine-tune it "
        "by `bert-jax finetune`."
    )
