"""Every fine-tuning task by its name."""

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.finetuning import TaskName
from bert_jax.tasks.finetuning_task import FinetuningTask


def finetuning_task(
    name: TaskName, data: ExamplesConfig, model: BertConfig | None = None
) -> FinetuningTask:
    """Return the task `name`; only its own modules are imported.

    Args:
        model: with the task's head and labels; None: not known yet.
    """
    model = BertConfig() if model is None else model
    if name in ("text-classification", "text-regression"):
        from bert_jax.tasks.text_classification import TextTask

        return TextTask(data, model, is_regression=name == "text-regression")
    if name == "token-classification":
        from bert_jax.tasks.ner import TokenClassificationTask

        return TokenClassificationTask(data, model)
    if name == "question-answering":
        from bert_jax.tasks.squad import QuestionAnsweringTask

        return QuestionAnsweringTask(data, model)
    from bert_jax.tasks.multiple_choice import MultipleChoiceTask

    return MultipleChoiceTask(data, model)


def task_name_of(model: BertConfig) -> TaskName:
    """Return the name of the task that a model's head is for.

    Raises:
        ValueError: the model was never fine-tuned.
    """
    if model.head == "sequence_classification":
        regression = model.problem_type == "regression"
        return "text-regression" if regression else "text-classification"
    names: dict[str, TaskName] = {
        "token_classification": "token-classification",
        "question_answering": "question-answering",
        "multiple_choice": "multiple-choice",
    }
    if model.head not in names:
        raise ValueError(
            f"The model has head={model.head}, which belongs to no task; fine-tune it "
            "by `bert-jax finetune`."
        )
    return names[model.head]
