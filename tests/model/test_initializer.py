"""The initializers: the same tensors, of other sizes."""

import dataclasses

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from bert_jax.config import BertConfig
from bert_jax.model.bert import init_params

CONFIG = BertConfig.miniature(2, 16, vocab_size=30, max_position_embeddings=8)


def test_deepnorm_changes_the_sizes_of_four_kernels_of_a_layer():
    """Of two layers: α = 4^¼ = √2 and β = 16^-¼ = ½ (Wang et al. 2022, Figure 2)."""
    other = dataclasses.replace(CONFIG, initializer="deepnorm")
    bert, deepnorm = (
        flatten_dict(init_params(config, jax.random.key(0)), sep="/")
        for config in (CONFIG, other)
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
