"""Muon: its directions by SVD, its share of the parameters, meshes, resume, memory."""

import dataclasses
import re
import shutil
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
    params: Any,
    steps: int,
    config: OptimizerConfig,
    shape: MeshConfig | None = None,
    dtype: Any = None,
) -> tuple[Any, Any]:
    """Parameters and state after some steps, on a mesh or on one device."""
    mesh = make_mesh(shape, 8) if shape else None
    optimizer = Optimizer(config, num_steps=10, mesh=mesh, dtype=dtype)
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
    """Two steps in NumPy, by SVD: the polynomial acts on the singular values alone."""
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
        u, wanted, vt = np.linalg.svd(0.9 * momentum + second, full_matrices=False)
        wanted /= np.linalg.norm(wanted)
        is_large = wanted > 0.02
        for _ in range(5):
            wanted = 3.4445 * wanted - 4.7750 * wanted**3 + 2.0315 * wanted**5
        update = (one[path] - value) / RATE - DECAY * one[path]
        rotated = u.T @ update @ vt.T / (0.2 * max(value.shape) ** 0.5)
        np.testing.assert_allclose(rotated, np.diag(wanted), atol=1e-3)
        assert is_large.sum() > 12
        assert np.all((wanted[is_large] > 0.65) & (wanted < 1.25)[is_large]), path
    assert kernels == 18


DIVIDED = [(2, 1, 1), (1, 8, 1)]
"""Meshes of which one axis alone divides the devices."""


@pytest.mark.parametrize(
    "shape",
    [
        (2, 2, 2),
        *(pytest.param(shape, marks=pytest.mark.slow) for shape in DIVIDED),
    ],
)
def test_meshes_agree_with_one_device(shape, params):
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
        one, many = (run(wide, 3, CONFIG, mesh) for mesh in (None, MeshConfig(*shape)))
        for a, b in zip(*map(jax.tree.leaves, (one, many)), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=AGREEMENT)


def test_each_matrix_is_of_one_device(params):
    """Of 12 square, 3 wide and 3 tall matrices, each of 8 devices has 2, 1 and 1."""
    mesh = make_mesh(MeshConfig(2, 2, 2), 8)
    optimizer = Optimizer(CONFIG, num_steps=10, mesh=mesh)
    trees = params, optimizer.init(params), params
    placed = [jax.device_put(tree, tree_shardings(mesh, tree)) for tree in trees]
    program = jax.jit(optimizer.update).lower(*placed).compile().as_text()
    assert "f32[2,16,16]" in program
    assert "f32[1,16,64]" in program and "f32[1,64,16]" in program
    assert "f32[12,16,16]" not in program.replace("all-gather", "")


def test_narrow_products_have_the_same_directions(params):
    """In bfloat16, of 8 bits, the update differs by less than a tenth of its size."""
    model = BertConfig.tiny(dtype="bfloat16")
    optimizer = Optimizer.of(PretrainConfig(model=model, optimizer=CONFIG))
    trees = params, optimizer.init(params), params
    program = jax.jit(optimizer.update).lower(*trees).as_text()
    products = re.findall(r"dot_general .* -> tensor<[\dx]+x(\w+)>", program)
    assert len(products) == 3 * 3 * 5 and set(products) == {"bf16"}
    whole, narrow = (
        flatten_dict(run(params, 1, CONFIG, dtype=dtype)[0])
        for dtype in (None, optimizer.dtype)
    )
    before = flatten_dict(params)
    for path, value in whole.items():
        size = np.linalg.norm(value - before[path])
        difference = np.linalg.norm(narrow[path] - value)
        assert narrow[path].dtype == value.dtype
        assert (0 < difference < 0.1 * size) == is_kernel_of_layer(path), path


@pytest.mark.slow
def test_a_run_resumes_bit_for_bit(small_config, tmp_path):
    optimizer = dataclasses.replace(small_config.optimizer, algorithm="muon")
    config = dataclasses.replace(
        small_config, optimizer=optimizer, microbatches=2, num_steps=5, eval_every=5
    )
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    pretrain(config, whole)
    shutil.copytree(whole, stopped)
    shutil.rmtree(stopped / "checkpoints" / "5")
    other = dataclasses.replace(optimizer, momentum=0.9)
    with pytest.raises(ValueError, match="optimizer.momentum was 0.95 and is 0.9"):
        pretrain(dataclasses.replace(config, optimizer=other), stopped)
    pretrain(config, stopped)
    assert_same_run(stopped, whole)


def test_a_run_of_another_algorithm_does_not_go_on(small_config, pretrained, tmp_path):
    optimizer = dataclasses.replace(small_config.optimizer, algorithm="muon")
    config = dataclasses.replace(small_config, optimizer=optimizer, num_steps=12)
    with pytest.raises(ValueError, match="algorithm was 'adamw' and is 'muon'"):
        pretrain(config, pretrained)
    config = dataclasses.replace(config, init_from=str(pretrained), keep_optimizer=True)
    with pytest.raises(ValueError, match="has the state of adamw and .*=muon"):
        pretrain(config, tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def test_frozen_layers_stay_as_they_are(params):
    config = dataclasses.replace(CONFIG, frozen_layers=2)
    after = flatten_dict(run(params, 1, config)[0])
    for path, value in flatten_dict(params).items():
        frozen = path[0] == "encoder" and path[1] != "layer_2"
        assert np.array_equal(value, after[path]) == frozen, path
