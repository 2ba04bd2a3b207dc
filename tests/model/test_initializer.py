"""The initializers: the same tensors, of other sizes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.config import BertConfig
from bert_jax.model.bert import init_params, layer_attention
from bert_jax.model.inputs import Inputs

drawn = functools.partial(jax.jit(init_params, static_argnums=0), key=jax.random.key(0))
attention_of = jax.jit(layer_attention, static_argnums=0)
four_heads = functools.partial(BertConfig.miniature, 2, num_attention_heads=4)
CONFIG = BertConfig.miniature(2, 16, vocab_size=30, max_position_embeddings=8)


def test_deepnorm_changes_the_sizes_of_four_kernels_of_a_layer():
    """Of two layers: α = 4^¼ = √2 and β = 16^-¼ = ½ (Wang et al. 2022, Figure 2)."""
    other = dataclasses.replace(CONFIG, initializer="deepnorm")
    bert, deepnorm = (
        flatten_dict(drawn(config), sep="/") for config in (CONFIG, other)
    )
    assert {k: v.shape for k, v in bert.items()} == {
        k: v.shape for k, v in deepnorm.items()
    }
    factors = {
        **dict.fromkeys(("attention/value", "feed_forward/in"), 0.5),
        **dict.fromkeys(("attention/output", "feed_forward/out"), 0.5 / 2**0.5),
    }
    scaled = 0
    for name, leaf in bert.items():
        factor = factors.get("/".join(name.split("/")[2:4]), 1.0)
        factor = factor if name.endswith("kernel") else 1.0
        scaled += factor != 1.0
        np.testing.assert_allclose(deepnorm[name], factor * leaf, rtol=1e-6)
    assert scaled == 8


@pytest.mark.parametrize(
    ("attention", "offsets"),
    [
        ("bidirectional", (-1, 1, -2, 2)),
        pytest.param("causal", (-1, -2, -3, -4), marks=pytest.mark.slow),
    ],
)
def test_local_heads_attend_to_a_neighbour_each(attention, offsets):
    """Of the first layer; the other layers begin as DeepNorm's."""
    config = four_heads(
        64,
        vocab_size=30,
        max_position_embeddings=24,
        initializer="local",
        attention=attention,
    )
    params = drawn(config)
    ids = jax.random.randint(jax.random.key(1), (8, 24), 0, 30)
    inputs = Inputs(ids, jnp.zeros_like(ids), ids >= 0)
    first = np.asarray(attention_of(config, params, inputs))[:, 0].mean(0)
    for head, offset in enumerate(offsets):
        by_offset = {o: first[head].diagonal(o)[4:-4].mean() for o in range(-5, 6)}
        assert max(by_offset, key=by_offset.get) == offset

    deepnorm = dataclasses.replace(config, initializer="deepnorm")
    expected = flatten_dict(drawn(deepnorm), sep="/")
    changed = {
        name
        for name, leaf in flatten_dict(params, sep="/").items()
        if not np.array_equal(leaf, expected[name])
    }
    attention = "encoder/layer_0/attention"
    kernels = {f"{attention}/{name}/kernel" for name in ("query", "key")}
    assert changed == {"encoder/embeddings/position/embedding", *kernels}


def test_matching_heads_attend_to_the_same_token_of_the_other_segment():
    """Not to the token itself; two heads attend to neighbours."""
    sizes = {"vocab_size": 1000, "max_position_embeddings": 32}
    config = four_heads(128, initializer="matching", **sizes)
    params = drawn(config)
    ids = np.random.default_rng(0).integers(5, 1000, (16, 32))
    ids[:, 20:26] = ids[:, 3:9]
    segments = jnp.arange(32)[None] // 16 + jnp.zeros_like(ids)
    inputs = Inputs(jnp.asarray(ids), segments, jnp.ones_like(ids, bool))
    first, second = np.asarray(attention_of(config, params, inputs)).mean(0)
    for head, offset in enumerate((-1, 1)):
        assert first[head].diagonal(offset)[4:-4].mean() > 0.4
    for head, offset in enumerate((-2, 2)):
        by_offset = {o: second[head].diagonal(o)[4:-4].mean() for o in range(-5, 6)}
        assert max(by_offset, key=by_offset.get) == offset
    for head in (2, 3):
        to_copy = first[head].diagonal(17)[3:9].mean()
        from_copy = first[head].diagonal(-17)[3:9].mean()
        assert min(to_copy, from_copy) > 0.2
        assert first[head].diagonal().mean() < 0.02


def test_local_positions_are_as_large_as_tokens():
    config = dataclasses.replace(CONFIG, initializer="local", vocab_size=1000)
    params = drawn(config)["encoder"]["embeddings"]
    sizes = {
        name: np.sqrt(np.mean(np.square(params[name]["embedding"])))
        for name in ("token", "position")
    }
    np.testing.assert_allclose(sizes["position"], sizes["token"], rtol=0.05)


def test_local_heads_are_at_least_two_wide():
    with pytest.raises(ValueError, match="heads of 1, which must be at least 2 wide"):
        dataclasses.replace(CONFIG, initializer="local", num_attention_heads=16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": 2}, "with 2 heads and 2 segments; it needs 3 and 2"),
        ({"num_attention_heads": 4}, "heads of 4, which must be at least 6 wide"),
        (
            {"attention": "causal", "head": "masked_lm"},
            "cannot be used with attention=caus",
        ),
    ],
)
def test_matching_heads_need_two_segments_and_width(changes, message):
    config = BertConfig.miniature(2, 16, vocab_size=30)
    if "attention" in changes:
        config = dataclasses.replace(config, hidden_size=48, num_attention_heads=4)
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(config, initializer="matching", **changes)


def test_parameters_are_float32_in_a_program_of_float64():
    config = four_heads(128, vocab_size=30, initializer="matching")
    with jax.enable_x64(True):
        init = functools.partial(init_params, config)
        shapes = jax.eval_shape(init, jax.random.key(0))
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(shapes)} == {"float32"}
