"""What a pretraining task learns from a teacher, on any number of devices."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from float64 import AGREEMENT, in_float64, reduced_in_float64, widened

from bert_jax.config import (
    BertConfig,
    MeshConfig,
    PretrainConfig,
    PretrainDistillationConfig,
)
from bert_jax.data.records import Dataset
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import to_global_arrays, tree_shardings
from bert_jax.model.bert import compute, init_params
from bert_jax.runs.pretraining import resolve
from bert_jax.tasks.distillation import DISTILLATION_LOSS, Teacher, layer_pairs
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.training.global_batch import StepInputs
from bert_jax.training.gradients import DEFAULT_COLLECTIVES, make_gradient
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.start import place_fixed_params
from bert_jax.training.step import initial_state, make_eval_step

pytestmark = pytest.mark.usefixtures("float64")


def drawn(model: BertConfig, seed: int) -> Any:
    draw = jax.jit(lambda key: init_params(model, key))
    return widened(jax.device_get(draw(jax.random.key(seed))))


@pytest.fixture(scope="module")
def task(small_config: PretrainConfig, dataset: Dataset) -> PretrainingTask:
    """A student of two layers, without dropout, and a teacher of four."""
    sizes = {"vocab_size": small_config.model.vocab_size, "num_attention_heads": 4}
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    sizes |= {"max_position_embeddings": 32, "initializer_range": 0.3}
    student = in_float64(BertConfig.miniature(2, 16, **sizes, **none))
    teacher = in_float64(BertConfig.miniature(4, 16, **sizes))
    distillation = PretrainDistillationConfig(
        label_weight=0.25,
        scores_weight=2.0,
        temperature=3.0,
        hidden_weight=0.5,
        relations_weight=1.5,
        relation_heads=2,
        relation_layer=2,
    )
    config = dataclasses.replace(
        small_config,
        model=student,
        batch_size=16,
        teacher="of four layers",
        distillation=distillation,
    )
    params = drawn(teacher, 5)
    kept = {name: params[name] for name in ("encoder", "masked_lm")}
    return PretrainingTask(
        resolve(config, dataset), dataset, teacher=Teacher(teacher, kept)
    )


@pytest.fixture(scope="module")
def params(task: PretrainingTask) -> Any:
    return drawn(task.config.model, 0)


def log_softmax(scores: np.ndarray) -> np.ndarray:
    scores = scores - scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


def divergence(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    ours, theirs = log_softmax(ours), log_softmax(theirs)
    return (np.exp(theirs) * (theirs - ours)).sum(-1)


def relations(model: BertConfig, params: Any, states: Any, layer: int) -> list[Any]:
    """Scaled products of queries, keys and values in two parts of the width."""
    attention = params["encoder"][f"layer_{layer}"]["attention"]
    products = []
    for name in ("query", "key", "value"):
        vectors = states[layer] @ attention[name]["kernel"] + attention[name]["bias"]
        parts = vectors.reshape(*vectors.shape[:2], 2, -1)
        products.append(np.einsum("btnh,bsnh->bnts", parts, parts) / np.sqrt(8))
    return products


def test_the_losses_are_those_of_numpy(task, params):
    """From the hidden states and scores that the models compute without a teacher."""
    c, teacher = task.config.distillation, task.teacher
    batch = jax.jit(task.corrupt)(task.batch(0), jax.random.key(3))
    everything = params | task.fixed_params
    sums = jax.jit(task.loss)(everything, batch, jax.random.key(0))
    counts = task.count(batch)
    inputs, real = batch.masked.inputs, np.asarray(batch.masked.inputs.attention_mask)
    assert not real.all(), "a row must have padding"

    def run(model: BertConfig, params: Any, method: str, *args: Any) -> Any:
        function = jax.jit(lambda: compute(model, params, method, inputs, *args))
        return jax.tree.map(np.asarray, function())

    scores = [
        run(model, params, "token_scores", batch.masked.predicted)
        for model, params in (
            (task.config.model, params),
            (teacher.config, teacher.params),
        )
    ]
    states = [
        run(task.config.model, params, "hidden_states"),
        run(teacher.config, teacher.params, "hidden_states"),
    ]
    related = [
        relations(task.config.model, params, states[0], 1),
        relations(teacher.config, teacher.params, states[1], 2),
    ]
    expected = 0.0
    for row in range(16):
        slots = np.asarray(batch.masked.weights[row]) > 0
        soft = divergence(*(s[row, slots] / 3.0 for s in scores)) * 9.0
        expected += c.scores_weight * soft.mean()
        tokens = real[row]
        # Every second layer of the teacher: outputs 2 and 4 of the embeddings' list.
        squares = [
            (states[0][ours][row, tokens] - states[1][theirs][row, tokens]) ** 2
            for ours, theirs in ((1, 2), (2, 4))
        ]
        expected += c.hidden_weight * np.mean(squares)
        parts = [
            divergence(*(kind[row][:, tokens][:, :, tokens] for kind in pair)).mean()
            for pair in zip(*related, strict=True)
        ]
        expected += c.relations_weight * np.sum(parts)
    total, count = sums[DISTILLATION_LOSS]
    assert count == counts[DISTILLATION_LOSS] == 16
    assert float(total) == pytest.approx(expected, rel=AGREEMENT)
    # The loss on the labels is what it is without a teacher.
    alone = dataclasses.replace(task, teacher=None)
    own = jax.jit(alone.loss)(params, batch, jax.random.key(0))
    for name, (value, number) in own.items():
        assert float(sums[name][0]) == pytest.approx(float(value), rel=AGREEMENT)
        assert sums[name][1] == number
    assert task.weights == {"mlm_loss": 0.25, "nsp_loss": 0.25}
    assert task.objective == ("mlm_loss", "nsp_loss", DISTILLATION_LOSS)


def gradient_of(
    task: PretrainingTask, params: Any, mesh_config: MeshConfig, microbatches: int
) -> tuple[Any, Any]:
    """The gradient and the sums of a batch, on the host."""
    mesh = make_mesh(mesh_config, 16, microbatches)
    shardings = tree_shardings(mesh, params)
    fixed = place_fixed_params(task, mesh)
    collectives = reduced_in_float64(DEFAULT_COLLECTIVES)
    gradient = jax.jit(
        make_gradient(
            task, lambda tree: tree, mesh, shardings, microbatches, collectives
        )
    )
    inputs = StepInputs(
        params=jax.device_put(params, shardings),
        batch=to_global_arrays(task.batch(0), mesh),
        step=np.int32(0),
        keys=jax.random.split(jax.random.key(4)),
        fixed=fixed,
    )
    return jax.device_get(gradient(inputs))


@pytest.fixture(scope="module")
def on_one_device(task: PretrainingTask, params: Any) -> tuple[Any, Any]:
    return gradient_of(task, params, MeshConfig(1), 1)


@pytest.mark.parametrize(
    ("mesh", "microbatches"),
    [
        ((8, 1, 1), 1),
        ((1, 1, 1), 4),
        ((2, 2, 2), 2),
    ],
)
@pytest.mark.slow
def test_devices_and_microbatches_add_up(
    mesh, microbatches, task, params, on_one_device
):
    gradient, sums = on_one_device
    other, other_sums = gradient_of(task, params, MeshConfig(*mesh), microbatches)
    for name in (DISTILLATION_LOSS, "mlm_loss", "nsp_loss"):
        np.testing.assert_allclose(other_sums[name], sums[name], rtol=AGREEMENT)
    for one, many in zip(*map(jax.tree.leaves, (gradient, other)), strict=True):
        np.testing.assert_allclose(many, one, rtol=0, atol=AGREEMENT)


@pytest.mark.slow
def test_the_teacher_changes_the_gradient(task, params, on_one_device):
    """And with label_weight=0 it is all that there is to learn."""
    c = dataclasses.replace(task.config.distillation, label_weight=0.0)
    config = dataclasses.replace(task.config, distillation=c)
    alone = dataclasses.replace(task, config=config)
    assert alone.objective == (DISTILLATION_LOSS,)
    gradient, _ = gradient_of(alone, params, MeshConfig(1), 1)
    # The head of pairs is not the teacher's to teach.
    assert not np.any(gradient["next_sentence"]["dense"]["kernel"])
    assert np.any(on_one_device[0]["next_sentence"]["dense"]["kernel"])
    assert np.abs(gradient["masked_lm"]["bias"]).max() > 1e-3


@pytest.mark.slow
def test_evaluation_has_the_loss_too(task, params):
    mesh = make_mesh(MeshConfig(2), 16)
    optimizer = Optimizer.of(task.config)
    state = jax.eval_shape(lambda: initial_state(task.init_params, optimizer, 0))
    step = make_eval_step(task, mesh, tree_shardings(mesh, state))
    batch = to_global_arrays(next(iter(task.evaluation_batches())), mesh)
    everything = params | place_fixed_params(task, mesh)
    sums, _ = step(everything, batch)
    total, count = sums[DISTILLATION_LOSS]
    assert 0 < count <= 16 and total > 0


@pytest.mark.parametrize(
    ("options", "counts", "expected"),
    [
        ({}, (3, 6), [(0, 1), (1, 3), (2, 5)]),
        ({}, (2, 2), [(0, 0), (1, 1)]),
        ({"student_layers": (1,)}, (2, 8), [(1, 7)]),
        (
            {"student_layers": (0, 1), "teacher_layers": (4, 2)},
            (2, 5),
            [(0, 4), (1, 2)],
        ),
        ({}, (2, 5), "has 5 layers, no multiple of the 2"),
        ({"student_layers": (2,)}, (2, 4), "student_layers has 2, and that model has"),
        ({"teacher_layers": (0, 4)}, (2, 4), "teacher_layers has 4, and that model"),
        ({"teacher_layers": (1,)}, (2, 4), "has 1 layers for the 2 to compare"),
    ],
)
def test_pairs_of_layers(options, counts, expected):
    config = PretrainDistillationConfig(hidden_weight=1.0, **options)
    if isinstance(expected, list):
        assert layer_pairs(config, *counts) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            layer_pairs(config, *counts)
