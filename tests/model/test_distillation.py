"""The distances of a student from its teacher, against numbers by hand and NumPy."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import AGREEMENT, in_float64, widened

from bert_jax.config import BertConfig
from bert_jax.model.bert import compute, init_params
from bert_jax.model.distillation import (
    binary_divergence,
    compute_with_internals,
    mean_by_row,
    relation_divergence,
    score_divergence,
    state_distance,
)
from bert_jax.model.inputs import Inputs


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


pytestmark = pytest.mark.usefixtures("float64")


def test_the_divergence_of_scores_by_hand():
    """Probabilities 1/2, 1/2 and a teacher's 1/4, 3/4."""
    teacher = jnp.array([[0.0, math.log(3)]])
    expected = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    found = score_divergence(jnp.zeros((1, 2)), teacher, 1.0)
    np.testing.assert_allclose(found, [expected], rtol=AGREEMENT)
    # At temperature 2, the teacher's are 1 : √3.
    second = math.sqrt(3) / (1 + math.sqrt(3))
    first = 1 - second
    expected = 4 * (first * math.log(first * 2) + second * math.log(second * 2))
    found = score_divergence(jnp.zeros((1, 2)), teacher, 2.0)
    np.testing.assert_allclose(found, [expected], rtol=AGREEMENT)


def test_the_gradient_of_the_divergence_is_that_of_hinton():
    """T (q - p), by the softmax at temperature T (Hinton et al. 2015, §2)."""
    generator = np.random.default_rng(0)
    ours, theirs = generator.normal(size=(2, 5)) * 3
    gradient = jax.grad(lambda x: score_divergence(x, jnp.array(theirs), 3.0))(ours)
    expected = 3.0 * (softmax(ours / 3.0) - softmax(theirs / 3.0))
    np.testing.assert_allclose(gradient, expected, atol=AGREEMENT)
    same = score_divergence(jnp.array(ours), jnp.array(ours), 3.0)
    np.testing.assert_allclose(same, 0.0, atol=AGREEMENT)


def test_the_divergence_of_a_class_and_its_absence():
    ours, theirs = jnp.array([0.5, -2.0]), jnp.array([1.5, 4.0])
    p, q = (1 / (1 + np.exp(-np.array(x) / 2)) for x in (theirs, ours))
    expected = 4 * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
    found = binary_divergence(ours, theirs, 2.0)
    np.testing.assert_allclose(found, expected, rtol=AGREEMENT)


def test_the_distance_of_states_by_hand():
    ours = jnp.array([[[1.0, 2.0], [0.0, 0.0]]])
    theirs = jnp.array([[[1.0, 4.0], [3.0, 1.0]]])
    np.testing.assert_array_equal(state_distance(ours, theirs), [[2.0, 5.0]])


def test_the_divergence_of_relations_is_that_of_a_loop():
    """Other widths, two relation heads, and a token that is padding."""
    generator = np.random.default_rng(1)
    ours, theirs = (
        [generator.normal(size=(2, 4, d)) for _ in range(3)] for d in (6, 8)
    )
    visible = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)
    expected = np.zeros((2, 4))
    for row, kind, head in np.ndindex(2, 3, 2):
        keys = visible[row]
        relations = []
        for vectors in (ours[kind][row], theirs[kind][row]):
            part = np.split(vectors, 2, axis=1)[head]
            products = part @ part.T / math.sqrt(part.shape[1])
            relations.append(softmax(products[:, keys]))
        q, p = relations
        expected[row] += (p * np.log(p / q)).sum(-1) / 2
    arrays = (tuple(map(jnp.array, part)) for part in (ours, theirs))
    found = relation_divergence(*arrays, jnp.array(visible)[:, None], 2)
    np.testing.assert_allclose(found, expected, rtol=AGREEMENT)
    assert expected.min() > 0.1


def test_the_mean_of_a_row_and_of_padding():
    values = jnp.array([[1.0, 3.0, 100.0], [5.0, 5.0, 5.0]])
    weights = jnp.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(mean_by_row(values, weights), [2.0, 0.0])


@pytest.fixture(scope="module")
def model() -> BertConfig:
    sizes = {"num_attention_heads": 4, "max_position_embeddings": 8}
    return in_float64(BertConfig.miniature(2, 16, vocab_size=20, **sizes))


@pytest.mark.slow
def test_internals_are_what_the_layers_compute(model):
    """Also with rematerialisation, and with the same dropout as without them."""
    params = widened(jax.jit(lambda key: init_params(model, key))(jax.random.key(0)))
    ids = jnp.arange(16).reshape(2, 8) % 20
    inputs = Inputs(ids, ids % 2, ids < 15)
    key = jax.random.key(1)
    states = jax.jit(
        lambda: compute(model, params, "hidden_states", inputs, dropout_key=key)
    )()
    kernels = params["encoder"]["layer_1"]["attention"]
    for remat in ("none", "attention", "layer"):
        config = dataclasses.replace(model, remat=remat)
        found, internals = jax.jit(
            lambda config=config: compute_with_internals(
                config, params, "hidden_states", inputs, dropout_key=key
            )
        )()
        assert len(internals.states) == len(internals.projections) == 2
        np.testing.assert_allclose(internals.states, states[1:], atol=AGREEMENT)
        np.testing.assert_allclose(found, states, atol=AGREEMENT)
        names = ("query", "key", "value")
        for name, values in zip(names, internals.projections[1], strict=True):
            kernel = kernels[name]["kernel"]
            np.testing.assert_allclose(values, states[1] @ kernel, atol=AGREEMENT)
    plain = jax.jit(lambda: compute(model, params, "hidden_states", inputs))()
    assert not np.allclose(plain[2], states[2], atol=0.01), "there must be dropout"
