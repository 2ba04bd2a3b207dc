"""What each fine-tuning task learns from a teacher's scores, against NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.tasks.answers.task import QuestionAnsweringTask
from bert_jax.tasks.choices.task import MultipleChoiceTask
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.kinds import finetuning_task, task_name_of
from bert_jax.tasks.tagging.task import TokenClassificationTask
from bert_jax.tasks.texts.classes import ClassTask
from bert_jax.tasks.texts.numbers import NumberTask

TEMPERATURE = 2.0


def drawn(*shape: int) -> list[np.ndarray]:
    """The scores of a student and of its teacher."""
    generator = np.random.default_rng(0)
    return [generator.normal(size=shape, scale=2.0).astype(np.float32) for _ in "st"]


def divergence(scores: np.ndarray, teacher_scores: np.ndarray) -> np.ndarray:
    """KL(teacher ‖ student) at the temperature, times its square."""
    q, p = (np.exp(x / TEMPERATURE) for x in (scores, teacher_scores))
    q, p = (x / x.sum(-1, keepdims=True) for x in (q, p))
    return TEMPERATURE**2 * (p * np.log(p / q)).sum(-1)


def distilled(
    task: FinetuningTask, scores: list[np.ndarray], **batch: np.ndarray
) -> tuple[float, float]:
    """The total and the count, which is that of the loss on the labels."""
    arrays = {name: jnp.asarray(values) for name, values in batch.items()}
    ours, theirs = map(jnp.asarray, scores)
    total, count = task.distillation_loss(ours, theirs, arrays, TEMPERATURE)
    assert count == task.label_count(arrays) == task.label_loss(ours, arrays)[1]
    assert task.distillation_loss(ours, ours, arrays, TEMPERATURE)[0] == pytest.approx(
        0, abs=1e-6
    )
    return float(total), float(count)


def text_task(**model: object) -> FinetuningTask:
    labels = BertConfig(head="sequence_classification", labels=("a", "b", "c"), **model)
    name = task_name_of(labels)
    return finetuning_task(name, ExamplesConfig(), labels)


def test_one_class_with_weights_and_padding():
    scores = drawn(4, 3)
    label = np.array([0, 2, 1, -1])
    total, count = distilled(text_task(), scores, label=label)
    assert total == pytest.approx(divergence(*scores)[:3].sum(), rel=1e-5)
    assert count == 3
    weighted = ClassTask(
        ExamplesConfig(), text_task().model, class_weights=(1.0, 2.0, 5.0)
    )
    total, count = distilled(weighted, scores, label=label)
    weights = np.array([1, 5, 2, 0])
    assert total == pytest.approx((divergence(*scores) * weights).sum(), rel=1e-5)
    assert count == 8


def test_several_classes_are_each_a_question():
    ours, theirs = scores = drawn(2, 3)
    task = text_task(problem_type="multi_label_classification")
    label = np.array([[1, 0, 1], [-1, -1, -1]])
    total, count = distilled(task, scores, label=label)
    pairs = [np.stack([x, np.zeros_like(x)], -1) for x in (ours, theirs)]
    assert total == pytest.approx(divergence(*pairs)[0].sum(), rel=1e-5)
    assert count == 3


def test_a_number_is_compared_by_its_square():
    model = BertConfig(
        head="sequence_classification", labels=("score",), problem_type="regression"
    )
    task = NumberTask(ExamplesConfig(), model)
    scores = [np.array(x, np.float32)[:, None] for x in ([1, 2, 9], [3, 1, 0])]
    label = np.array([0.5, 0.5, np.nan], np.float32)
    assert distilled(task, scores, label=label) == (5.0, 2.0)


def test_each_labelled_word():
    scores = drawn(2, 4, 3)
    label = np.array([[-1, 0, 2, -1], [1, -1, -1, -1]])
    model = BertConfig(head="token_classification", labels=("O", "B-a", "I-a"))
    task = TokenClassificationTask(ExamplesConfig(), model)
    total, count = distilled(task, scores, label=label)
    assert total == pytest.approx(divergence(*scores)[label >= 0].sum(), rel=1e-5)
    assert count == 3


def test_the_choices_of_an_example():
    scores = drawn(3, 4)
    task = MultipleChoiceTask(ExamplesConfig(), BertConfig(head="multiple_choice"))
    total, count = distilled(task, scores, label=np.array([3, -1, 0]))
    expected = divergence(*scores)[[0, 2]].sum()
    assert (total, count) == (pytest.approx(expected, rel=1e-5), 2)


def test_start_and_end_over_real_tokens():
    """The second row has three tokens, and the third no label."""
    scores = drawn(3, 5, 2)
    task = QuestionAnsweringTask(
        ExamplesConfig(), BertConfig(head="question_answering")
    )
    label, end = np.array([[1, 2], [0, 0], [-1, -1]]), np.array([5, 3, 4])
    total, count = distilled(task, scores, label=label, end=end)
    expected = sum(
        divergence(*(x[row, : end[row], kind] for x in scores)) / 2
        for row in (0, 1)
        for kind in (0, 1)
    )
    assert (total, count) == (pytest.approx(expected, rel=1e-5), 2)
