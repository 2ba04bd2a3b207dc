"""Layers that learn slower, or not at all, and the schedules of the learning rate."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.config import BertConfig, OptimizerConfig
from bert_jax.distributed.sharding import path_name
from bert_jax.model.bert import init_params
from bert_jax.training.optimizer import (
    Optimizer,
    adam,
    depths,
    learning_rate,
)

MODEL = BertConfig.miniature(
    3,
    16,
    vocab_size=30,
    max_position_embeddings=16,
    head="sequence_classification",
    labels=("a", "b"),
)


def leaves() -> dict[str, Any]:
    values = np.array([0.5, -1.0, 2.0], np.float32)
    dense = {"dense": {"kernel": values, "bias": values + 1}}
    return dense | {"layer_norm": {"scale": values - 3}}


@pytest.fixture(scope="module")
def params() -> Any:
    """A few leaves of each kind, of one shape, so that little is compiled."""
    embeddings = {"token": {"embedding": np.array([1.0, -2.0, 3.0], np.float32)}}
    layers = {f"layer_{i}": leaves() for i in range(3)}
    return jax.tree.map(
        jnp.asarray,
        {
            "encoder": {"embeddings": embeddings, **layers},
            "pooler": leaves(),
            "classifier": leaves(),
        },
    )


def by_name(tree: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {path_name(path): leaf for path, leaf in leaves}


def updates(params: Any, **options: float) -> dict[str, np.ndarray]:
    """The first update at a constant rate of 1, from a gradient of ones."""
    config = OptimizerConfig(peak_learning_rate=1.0, warmup_steps=0, **options)
    optimizer = Optimizer(config, num_steps=1)
    ones = jax.tree.map(jnp.ones_like, params)
    after, _, norm = optimizer.update(ones, optimizer.init(params), params)
    assert norm > 1
    moved = jax.tree.map(jnp.subtract, after, params)
    return {name: np.asarray(leaf) for name, leaf in by_name(moved).items()}


def level(name: str) -> int:
    """0 embeddings, 1…3 layers, 4 pooler and classifier, from the name alone."""
    parts = name.split("/")
    if parts[0] != "encoder":
        return 4
    return int(parts[1][-1]) + 1 if parts[1].startswith("layer_") else 0


def test_depths_go_from_embeddings_to_heads():
    draw = functools.partial(init_params, MODEL)
    found = by_name(depths(jax.eval_shape(draw, jax.random.key(0))))
    assert found == {name: level(name) for name in found}
    assert set(found.values()) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("algorithm", ["adamw", "lamb", "muon"])
def test_a_model_of_ones_own_needs_no_encoder(algorithm):
    config = OptimizerConfig(algorithm=algorithm, warmup_steps=0)
    optimizer, params = Optimizer(config, num_steps=1), {"mean": jnp.float32(2)}
    state = jax.eval_shape(optimizer.init, params)
    after, *_ = jax.eval_shape(optimizer.update, params, state, params)
    assert after["mean"].shape == ()


def test_what_would_freeze_a_whole_model_is_refused(params):
    optimizer = Optimizer(OptimizerConfig(frozen_layers=1), num_steps=1)
    optimizer.freeze(params)
    with pytest.raises(ValueError, match="^optimizer.frozen_layers=1 leaves .* most 0"):
        optimizer.freeze({"mean": jnp.float32(2)})


def test_each_layer_moves_a_share_of_the_one_above(params):
    """Adam's first update is 1 everywhere, whatever the size of the gradient."""
    found = updates(params, layer_decay=0.5, weight_decay=0.0)
    for name, update in found.items():
        np.testing.assert_allclose(update, -(0.5 ** (4 - level(name))), rtol=1e-3)


def test_weight_decay_is_scaled_with_its_layer(params):
    plain = updates(params, layer_decay=0.5, weight_decay=0.0)
    found = updates(params, layer_decay=0.5, weight_decay=0.25)
    values = by_name(params)
    for name, update in found.items():
        decayed = name.endswith(("kernel", "embedding"))
        share = 0.5 ** (4 - level(name)) * 0.25 * decayed
        np.testing.assert_allclose(
            update, plain[name] - share * values[name], rtol=1e-5, atol=1e-7
        )


def test_a_decay_of_one_changes_nothing(params):
    for name, update in updates(params, weight_decay=0.0).items():
        np.testing.assert_allclose(update, -1.0, rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("frozen", [1, 2, 3])
def test_frozen_layers_stay_bit_by_bit(frozen, params):
    """Weight decay would move them too."""
    found = updates(params, frozen_layers=frozen, weight_decay=0.1)
    for name, update in found.items():
        if level(name) <= frozen:
            np.testing.assert_array_equal(update, 0.0, err_msg=name)
        else:
            assert (update != 0).all(), name


def test_frozen_layers_are_left_out_of_the_gradient(params):
    def loss(values: Any) -> Any:
        kept = Optimizer(OptimizerConfig(frozen_layers=2), 1).freeze(values)
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(kept))

    for name, gradient in by_name(jax.grad(loss)(params)).items():
        np.testing.assert_array_equal(gradient, float(level(name) > 2), err_msg=name)


def test_lamb_gives_each_kernels_update_the_kernels_norm(params):
    """And leaves biases and LayerNorm to Adam (You et al. 2020, Alg. 2)."""
    adam = updates(params, weight_decay=0.1)
    lamb = updates(params, weight_decay=0.1, algorithm="lamb")
    scaled = 0
    for name, values in by_name(params).items():
        if name.endswith(("kernel", "embedding")):
            norm = np.linalg.norm(np.asarray(values))
            ratio = norm / np.linalg.norm(adam[name])
            np.testing.assert_allclose(lamb[name], adam[name] * ratio, rtol=1e-5)
            scaled += abs(ratio - 1) > 0.01
        else:
            np.testing.assert_array_equal(lamb[name], adam[name], err_msg=name)
    assert scaled, "the ratios must differ from 1"


def rates(num_steps: int, **options: Any) -> list[float]:
    config = OptimizerConfig(peak_learning_rate=1.0, **options)
    schedule = learning_rate(config, num_steps)
    return [float(schedule(step)) for step in range(num_steps + 1)]


def test_a_warm_up_by_its_share():
    share = {"warmup_steps": 0, "warmup_share": 0.2}
    assert rates(10, **share) == pytest.approx(
        [0, 1 / 2, 1, *(i / 8 for i in range(7, -1, -1))]
    )
    assert rates(10, **share) == rates(10, warmup_steps=2)
    assert rates(10, **share | {"warmup_steps": 5})[:6] == pytest.approx(
        [i / 5 for i in range(6)]
    ), "steps that are given go before the share"


def test_a_share_of_no_whole_step_is_no_warm_up():
    assert rates(4, warmup_steps=0, warmup_share=0.1) == pytest.approx(
        [1, 0.75, 0.5, 0.25, 0]
    )


def test_a_constant_rate_falls_over_the_last_share():
    constant = {"schedule": "constant", "warmup_steps": 2}
    assert rates(10, **constant, decay_share=0.4) == pytest.approx(
        [0, 1 / 2, 1, 1, 1, 1, 1, 3 / 4, 1 / 2, 1 / 4, 0]
    )
    assert rates(10, **constant) == rates(10, **constant, decay_share=0.2)
    assert rates(10, **constant)[7:] == pytest.approx([1, 1, 0.5, 0])
    assert rates(10, **constant, decay_share=0.0) == [0, 0.5, *[1] * 9], "no decay"


def test_a_constant_rate_of_no_step_is_the_linear_schedule():
    assert rates(
        10, schedule="constant", warmup_steps=2, decay_share=0.8
    ) == pytest.approx(rates(10, warmup_steps=2))


def test_two_shares_that_are_both_rounded_up_do_not_overlap():
    """Of 7 steps, 3.5 of warm-up and 3.5 of decay: 4 and 3."""
    halves = {"warmup_steps": 0, "warmup_share": 0.5, "decay_share": 0.5}
    assert rates(7, schedule="constant", **halves) == pytest.approx(
        [0, 1 / 4, 2 / 4, 3 / 4, 1, 2 / 3, 1 / 3, 0]
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"layer_decay": 0.0}, "layer_decay=0.0 must be above 0 and at most 1"),
        ({"layer_decay": 1.1}, "layer_decay=1.1 must be above 0 and at most 1"),
        ({"frozen_layers": -1}, "frozen_layers=-1 must be"),
        ({"warmup_share": 1.0}, "warmup_share=1.0 must be"),
        ({"decay_share": 0.3}, "decay_share=0.3 has no effect with schedule=linear"),
    ],
)
def test_refused_options(options, says):
    with pytest.raises(ValueError, match=says):
        dataclasses.replace(OptimizerConfig(), **options)


def test_adam_is_optax_s_behind_a_clip():
    """Gradients both longer than the limit and shorter, and of zeros."""
    config = OptimizerConfig(max_grad_norm=0.5, beta1=0.8, beta2=0.95, epsilon=1e-4)
    theirs = optax.chain(
        optax.clip_by_global_norm(0.5), optax.scale_by_adam(0.8, 0.95, 1e-4)
    )
    ours = adam(config)
    params = {"a": jnp.zeros(3), "b": jnp.zeros((2, 2))}
    one, other = ours.init(params), theirs.init(params)
    longer = 0
    for number, size in enumerate((3.0, 0.01, 0.0, 40.0, 0.2)):
        keys = jax.random.split(jax.random.key(number))
        grads = {
            name: size * jax.random.normal(key, params[name].shape)
            for name, key in zip(params, keys, strict=True)
        }
        norm = optax.tree.norm(grads)
        longer += bool(norm > 0.5)
        found, one = ours.update(grads, one, grad_norm=norm)
        expected, other = theirs.update(grads, other)
        for left, right in zip(
            jax.tree.leaves((found, one)),
            jax.tree.leaves((expected, other)),
            strict=True,
        ):
            np.testing.assert_allclose(left, right, rtol=2e-6)
    assert 0 < longer < 5 and int(one.count) == 5


def test_adam_stays_where_the_gradient_is_not_finite():
    transformation = adam(OptimizerConfig())
    grads = {"a": jnp.array([1.0, 2.0])}
    state = transformation.init(grads)
    norm = optax.tree.norm(grads)
    _, before = transformation.update(grads, state, grad_norm=norm)
    for wrong in (jnp.nan, jnp.inf):
        broken = {"a": jnp.array([1.0, wrong])}
        norm = optax.tree.norm(broken)
        _, after = transformation.update(broken, before, grad_norm=norm)
        for old, new in zip(
            jax.tree.leaves(before), jax.tree.leaves(after), strict=True
        ):
            np.testing.assert_array_equal(old, new)
