"""Muon: its directions by SVD, its share of the parameters, meshes, resume, memory."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from float64 import AGREEMENT
from run_helpers import assert_same_run

from bert_jax.config import BertConfig, MeshConfig, OptimizerConfig, PretrainConfig
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import tree_shardings
from bert_jax.model.bert import init_params
from bert_jax.runs.pretraining import pretrain
from bert_jax.training.optimizer import Optimizer

RATE, DECAY, LIMIT = 0.1, 0.02, 0.5
CONFIG = OptimizerConfig(
    algorithm="muon",
    peak_learning_rate=RATE,
    schedule="constant",
    decay_share=0.0,
    warmup_steps=0,
    weight_decay=DECAY,
    max_grad_norm=LIMIT,
    momentum=0.9,
)


@pytest.fixture(scope="module")
def params() -> Any:
    """Three layers, so that no mesh of eight divides the number of any shape."""
    config = BertConfig.miniature(3, 16, vocab_size=30, max_position_embeddings=16)
    return jax.jit(lambda: init_params(config, jax.random.key(0)))()


def gradients(params: Any, number: int) -> Any:
    """Random gradients; those of even numbers are longer than the limit."""
    generator = np.random.default_rng(number)
    size = 1.0 if number % 2 == 0 else 1e-3
    return jax.tree.map(
        lambda leaf: jnp.asarray(size * generator.normal(size=leaf.shape), leaf.dtype),
        params,
    )


def run(
    params: Any, steps: int, config: OptimizerConfig, shape: MeshConfig | None = None
) -> tuple[Any, Any]:
    """Parameters and state after some steps, on a mesh or on one device."""
    mesh = make_mesh(shape, 8) if shape else None
    optimizer = Optimizer(config, num_steps=10, mesh=mesh)
    state = optimizer.init(params)
    if mesh is not None:
        params, state = (
            jax.device_put(tree, tree_shardings(mesh, tree)) for tree in (params, state)
        )
    step = jax.jit(optimizer.update)
    for number in range(steps):
        params, state, _ = step(gradients(params, number), state, params)
    return params, state


def is_kernel_of_layer(path: tuple[str, ...]) -> bool:
    return "layer_" in path[1] and path[-1] == "kernel"


def test_directions_are_those_of_the_singular_vectors(params):
    """Two steps in NumPy: singular vectors by SVD, singular values in [0.65, 1.25]."""
    one, two = (flatten_dict(run(params, n, CONFIG)[0]) for n in (1, 2))
    plain = dataclasses.replace(CONFIG, algorithm="adamw", momentum=0.95)
    adamw = flatten_dict(run(params, 2, plain)[0])
    clipped = []
    for number in (0, 1):
        flat = flatten_dict(gradients(params, number))
        norm = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in flat.values()))
        clipped.append({p: min(1, LIMIT / norm) * leaf for p, leaf in flat.items()})
    kernels = 0
    for path, value in two.items():
        if not is_kernel_of_layer(path):
            np.testing.assert_array_equal(value, adamw[path], err_msg=str(path))
            continue
        kernels += 1
        first, second = clipped[0][path], clipped[1][path]
        momentum = 0.9 * first + second
        u, _, vt = np.linalg.svd(0.9 * momentum + second, full_matrices=False)
        update = (one[path] - value) / RATE - DECAY * one[path]
        found = u.T @ update @ vt.T / (0.2 * max(value.shape) ** 0.5)
        values = np.diagonal(found)
        assert 0.65 < values.min() < values.max() < 1.25, path
        np.testing.assert_allclose(found, np.diag(values), atol=2e-4)
    assert kernels == 18


@pytest.mark.parametrize("shape", [(2, 1, 1), (8, 1, 1), (2, 2, 2), (1, 8, 1)])
def test_meshes_agree_with_one_device(shape, params):
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
        one, many = (run(wide, 3, CONFIG, mesh) for mesh in (None, MeshConfig(*shape)))
        for a, b in zip(*map(jax.tree.leaves, (one, many)), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=AGREEMENT)


def test_each_matrix_is_of_one_device(params):
    """Of 12 square and 6 oblong matrices, each of 8 devices multiplies 2 and 1."""
    mesh = make_mesh(MeshConfig(2, 2, 2), 8)
    optimizer = Optimizer(CONFIG, num_steps=10, mesh=mesh)
    trees = params, optimizer.init(params), params
    placed = [jax.device_put(tree, tree_shardings(mesh, tree)) for tree in trees]
    program = jax.jit(optimizer.update).lower(*placed).compile().as_text()
    assert "f32[2,16,16]" in program and "f32[1,16,64]" in program
    assert "f32[12,16,16]" not in program.replace("all-gather", "")
