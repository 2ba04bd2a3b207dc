"""The gradient of InfoNCE: whole, cached, and on several devices, it is the same."""

import dataclasses
import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from etils import epath
from float64 import AGREEMENT, in_float64, reduced_in_float64, widened
from small_world import OBJECTS, PLACES, SUBJECTS, VERBS

from bert_jax.config import ExamplesConfig, FinetuneConfig, MeshConfig
from bert_jax.config.model import BertConfig
from bert_jax.config.sentence_pairs import SentencePairsConfig
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import to_global_arrays, tree_shardings
from bert_jax.runs.finetuning import finetuning_of
from bert_jax.runs.finetuning_setup import prepare_finetuning
from bert_jax.runs.program import collectives
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.training.global_batch import StepInputs
from bert_jax.training.gradients import Collectives, make_gradient

BATCH_SIZE = 16


def write_pairs(path: Path, number: int = 32) -> Path:
    """Few first texts with several partners, which are negatives of other rows, too."""
    generator = random.Random(0)
    rows = []
    for _ in range(number):
        subject, place = generator.choice(SUBJECTS[:4]), generator.choice(PLACES)
        verb, thing = generator.choice(VERBS), generator.choice(OBJECTS)
        text = f"The {subject} {verb} the {thing} in the {place}."
        rows.append((f"Where is the {subject}?", text))
    rows += [(text, first) for first, text in rows[: number // 4]]
    others = [text for _, text in rows]
    generator.shuffle(others)
    lines = ["anchor,positive,negative"]
    lines += [f"{a},{b},{c}" for (a, b), c in zip(rows, others, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def task(tmp_path_factory: Any, encoder_checkpoint: Path) -> FinetuningTask:
    """A batch with hard negatives, repeated texts, and vectors of two lengths."""
    folder = tmp_path_factory.mktemp("pairs")
    pairs = SentencePairsConfig(temperature=0.2, symmetric=True, dimensions=(8,))
    file = str(write_pairs(folder / "pairs.csv"))
    data = ExamplesConfig(
        train=file, validation=file, num_buckets=1, sentence_pairs=pairs
    )
    config = FinetuneConfig(
        task="sentence-pairs",
        model=BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
        data=data,
        init_from=str(encoder_checkpoint),
        batch_size=BATCH_SIZE,
        num_steps=4,
        mesh=MeshConfig(data=1),
    )
    root = epath.Path(folder)
    setup = prepare_finetuning(config, root / "none", root / "examples")
    return finetuning_of(setup)


def drawn(task: FinetuningTask) -> Any:
    """Parameters that make vectors different: three times those of the seed."""
    params = jax.jit(task.init_params)(jax.random.key(0))
    params = jax.tree.map(lambda leaf: 3 * np.asarray(leaf), params)
    return widened(params) if task.model.dtype == "float64" else params


def with_model(task: FinetuningTask, model: BertConfig) -> FinetuningTask:
    return dataclasses.replace(task, model=model)


def compiled(task: FinetuningTask, shape: tuple[int, int], microbatches: int) -> Any:
    """The gradient on a mesh as a program, and its arguments."""
    mesh = make_mesh(MeshConfig(*shape), BATCH_SIZE, microbatches)
    params = drawn(task)
    shardings = tree_shardings(mesh, params)
    collectives = Collectives.of(task.training.config)
    if task.model.dtype == "float64":
        collectives = reduced_in_float64(collectives)
    gradient = make_gradient(
        task, lambda p: p, mesh, shardings, microbatches, collectives
    )
    inputs = StepInputs(
        params=jax.device_put(params, shardings),
        batch=to_global_arrays(task.batch(0), mesh),
        step=np.int32(0),
        keys=jax.random.split(jax.random.key(1)),
        fixed={},  # no teacher
    )
    return jax.jit(gradient).lower(inputs).compile(), inputs


def gradient_of(task: FinetuningTask, shape: tuple[int, int], microbatches: int) -> Any:
    """In float64."""
    with jax.enable_x64(True):
        task = with_model(task, in_float64(task.model))
        program, inputs = compiled(task, shape, microbatches)
        return jax.device_get(program(inputs))


@pytest.fixture(scope="module")
def whole(task: FinetuningTask) -> Any:
    """On one device, all rows at once."""
    return gradient_of(task, (1, 1), 1)


def require_equal(one: Any, other: Any) -> None:
    """In float64, equal to rounding of the largest entry of the gradient."""
    (first, sums), (second, others) = one, other
    assert sums["loss"][1] == others["loss"][1] == BATCH_SIZE
    assert sums["loss"][0] == pytest.approx(others["loss"][0], rel=AGREEMENT)
    leaves = jax.tree.leaves(first)
    largest = max(np.abs(leaf).max() for leaf in leaves)
    assert largest > 1e-3 and leaves[0].dtype == np.float64
    for a, b in zip(leaves, jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=AGREEMENT * largest)


def test_texts_of_a_batch_repeat(task):
    """As partners of equal first texts, on both sides, and as others' negatives."""
    ids = task.batch(0)["text_ids"]
    pairs = {(a, b) for a, b, _ in ids.tolist()}
    assert len({a for a, _ in pairs}) < len(pairs)
    assert any((b, a) in pairs for a, b in pairs)
    assert set(ids[:, 2].tolist()) & set(ids[:, 1].tolist())


def test_the_cached_gradient_is_that_of_the_whole_batch(task, whole):
    require_equal(gradient_of(task, (1, 1), 4), whole)


@pytest.mark.parametrize(
    ("shape", "microbatches"),
    [
        pytest.param((2, 1), 1, marks=pytest.mark.slow),
        pytest.param((8, 1), 1, marks=pytest.mark.slow),
        ((2, 4), 2),
    ],
)
def test_the_negatives_are_those_of_all_devices(task, whole, shape, microbatches):
    require_equal(gradient_of(task, shape, microbatches), whole)


@pytest.mark.slow
def test_the_vectors_are_gathered_once(task):
    """One all-gather of float32 [B, C, D], and one of the numbers of the texts."""
    program, _ = compiled(task, (8, 1), 1)
    found = collectives(program.as_text())
    num_texts, width = 3, task.model.hidden_size
    size = BATCH_SIZE * num_texts * 4 * (width + 1)
    assert found["all-gather"][1] == size, found
    assert found["all-gather"][0] <= 2, found
    assert found["reduce-scatter"][0] == 1, found


@pytest.mark.slow
def test_dropout_is_the_same_in_both_passes(task):
    """With dropout, the cached gradient is that of the loss that it reports."""
    dropped = dataclasses.replace(task.model, hidden_dropout_prob=0.3)
    program, inputs = compiled(with_model(task, dropped), (1, 1), 2)
    grads, sums = program(inputs)
    norm = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(grads)))
    step = 1e-3 / norm
    moved = jax.tree.map(lambda leaf, g: leaf - step * g, inputs.params, grads)
    _, after = program(inputs.replace(params=moved))
    decrease = float(sums["loss"][0] - after["loss"][0]) / BATCH_SIZE
    # To first order, the loss falls by step · norm².
    assert decrease == pytest.approx(step * norm**2, rel=0.1)
