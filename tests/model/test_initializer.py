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
    [("bidirectional", (-1, 1, -2, 2)), ("causal", (-1, -2, -3, -4))],
)
def test_local_heads_attend_to_a_neighbour_each(attention, offsets):
    """Of the first layer; the other layers begin as DeepNorm's."""
    config = BertConfig.miniature(
        2,
        64,
        num_attention_heads=4,
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
