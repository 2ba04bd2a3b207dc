"""Classes of different frequency: weights in the loss, and repeated examples."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight

from bert_jax.config import BertConfig, ExamplesConfig, FinetuneConfig
from bert_jax.data.examples import TokenizedExamples
from bert_jax.tasks.texts.classes import ClassTask, balanced_rows, balanced_weights

some_labels = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@given(some_labels)
def test_weights_are_those_of_scikit_learn(labels):
    found = np.array(balanced_weights(np.array(labels), 4))
    classes = np.unique(labels)
    expected = compute_class_weight("balanced", classes=classes, y=np.array(labels))
    # scikit-learn counts only the classes that occur.
    np.testing.assert_allclose(found[classes], expected * len(classes) / 4)
    assert not found[np.setdiff1d(np.arange(4), classes)].any()


@given(some_labels, st.integers(0, 9))
def test_repeated_rows_make_classes_equally_frequent(labels, seed):
    labels = np.array(labels)
    rows = balanced_rows(labels, seed)
    assert len(set(np.bincount(labels[rows])[np.unique(labels)])) == 1
    repeats = np.bincount(rows, minlength=len(labels))
    for label in np.unique(labels):
        own = repeats[labels == label]
        assert own.min() >= 1 and np.ptp(own) <= 1
    assert (rows == balanced_rows(labels, seed)).all()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=9), st.integers(1, 3))
def test_taken_examples_gather_as_the_examples_do(numbers, choices):
    lengths = np.arange(1, 5 * choices + 1)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    examples = TokenizedExamples(
        tokens=np.arange(starts[-1], dtype=np.int32),
        starts=starts,
        second=(lengths - 1).astype(np.int32),
        example=np.arange(5, dtype=np.int32),
        by_example={"label": np.arange(5, dtype=np.int32) * 10},
        by_token={"label": -np.arange(starts[-1], dtype=np.int32)},
        choices=choices,
    )
    chosen = np.array(numbers)
    taken = examples.take(chosen)
    direct = examples.gather(chosen, int(lengths[-1]))
    through = taken.gather(np.arange(len(chosen)), int(lengths[-1]))
    for name in direct.keys() - {"row"}:
        np.testing.assert_array_equal(through[name], direct[name])


def test_the_loss_is_the_weighted_mean():
    model = BertConfig.miniature(1, 16, vocab_size=9)
    model = dataclasses.replace(
        model,
        head="sequence_classification",
        labels=("a", "b"),
        problem_type="single_label_classification",
    )
    task = ClassTask(ExamplesConfig(), model, class_weights=(0.5, 3.0))
    scores = jnp.array([[2.0, 1.0], [0.0, 1.0], [5.0, 5.0]])
    batch = {"label": jnp.array([0, 1, -1])}
    total, count = task.label_loss(scores, batch)
    losses = optax.softmax_cross_entropy_with_integer_labels(
        scores[:2], batch["label"][:2]
    )
    assert float(total) == pytest.approx(0.5 * losses[0] + 3 * losses[1])
    assert float(count) == float(task.label_count(batch)) == 3.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_weights": "balanced", "task": "text-regression"}, "task=text-regr"),
        ({"data": ExamplesConfig(balance=True, multi_label=True)}, "multi_label has"),
        (
            {"class_weights": "balanced", "data": ExamplesConfig(balance=True)},
            "has no effect with data.balance",
        ),
    ],
)
def test_what_cannot_be_balanced(changes, message):
    with pytest.raises(ValueError, match=message):
        FinetuneConfig(**changes)
