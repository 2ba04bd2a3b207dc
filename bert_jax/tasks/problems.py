"""Every problem by the name of its task."""

from bert_jax.config.finetuning import TaskName
from bert_jax.tasks.problem import Problem


def problem_of(task: TaskName) -> Problem:
    """The problem; only its own files are loaded."""
    if task == "text-classification":
        from bert_jax.tasks.text_classification import TEXT_CLASSIFICATION

        return TEXT_CLASSIFICATION
    if task == "text-regression":
        from bert_jax.tasks.text_classification import TEXT_REGRESSION

        return TEXT_REGRESSION
    if task == "token-classification":
        from bert_jax.tasks.ner import TOKEN_CLASSIFICATION

        return TOKEN_CLASSIFICATION
    if task == "question-answering":
        from bert_jax.tasks.squad import QUESTION_ANSWERING

        return QUESTION_ANSWERING
    from bert_jax.tasks.multiple_choice import MULTIPLE_CHOICE

    return MULTIPLE_CHOICE
