"""First values of the layers' parameters that let a small budget learn more from it.

The tensors and their computation stay those of BERT.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.config import BertConfig
from bert_jax.config.model import Params

OFFSETS = {"bidirectional": (-1, 1, -2, 2), "causal": (-1, -2, -3, -4)}
"""The neighbours that heads of the first layer attend to, by the mask of attention."""
SHARPNESS = 6.0
"""How much higher the score of the neighbour is than that of far tokens, in nats."""
HIGHEST, LOWEST = 3.0, 0.1
"""Frequencies of the waves, in radians a token: a neighbour differs from the next one,
and from tokens some tens away."""
CUT = 0.88
"""The deviation of a normal that is cut at ±2σ, in σ."""


def deepnorm(config: BertConfig, params: Params) -> Params:
    """Scale the initial kernels of the layers as DeepNorm does (Wang et al. 2022, §3).

    DeepNorm computes LayerNorm(α x + G(x)), α = (2L)^¼, and draws the kernels of values
    and outputs of attention and both of the feed-forward layer β = (8L)^-¼ times as
    large. LayerNorm does not see the scale of its input, so that this is
    LayerNorm(x + G(x) / α): the last kernel of each branch is divided by α.
    """
    layers = config.num_hidden_layers
    alpha, beta = (2 * layers) ** 0.25, (8 * layers) ** -0.25
    inner, last = beta, beta / alpha
    scales = {
        ("attention", "value"): inner,
        ("attention", "output"): last,
        ("feed_forward", "in"): inner,
        ("feed_forward", "out"): last,
    }
    flat = flatten_dict(params)
    for path, leaf in flat.items():
        if path[0] == "encoder" and path[-1] == "kernel":
            flat[path] = leaf * scales.get(path[-3:-1], 1.0)
    scaled: Params = unflatten_dict(flat)
    return scaled


def local(config: BertConfig, params: Params) -> Params:
    """Let heads of the first layer attend to one neighbour each from the first step.

    A trained BERT has such heads (Clark et al. 2019, §3.1), and a small budget spends
    much of its time on finding them. Positions begin as waves, as large as tokens, in
    as many columns as a head has; a step to a neighbour turns them (Vaswani et al.
    2017, §3.5). A head's keys begin as these columns, and its queries as the same
    columns turned by its offset, so that their product is highest there. A layer has
    at most four such heads. All else begins as DeepNorm's.
    """
    head_width = config.hidden_size // config.num_attention_heads
    frequencies = np.geomspace(HIGHEST, LOWEST, head_width // 2)
    columns = 2 * len(frequencies)
    angles = np.arange(config.max_position_embeddings)[:, None] * frequencies
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    amplitude = (
        (2 * config.hidden_size / columns) ** 0.5 * CUT * config.initializer_range
    )
    flat = flatten_dict(deepnorm(config, params))
    table = ("encoder", "embeddings", "position", "embedding")
    flat[table] = jnp.zeros_like(flat[table]).at[:, :columns].set(amplitude * waves)

    # LayerNorm divides by the deviation of a token, a position and a segment, so that
    # a query times the key of its neighbour is gain² · D / 3 · √H for heads of H.
    gain = (3 * SHARPNESS * head_width**0.5 / config.hidden_size) ** 0.5
    offsets = OFFSETS[config.attention][: config.num_attention_heads]
    for head, offset in enumerate(offsets):
        cos, sin = (np.diag(wave(offset * frequencies)) for wave in (np.cos, np.sin))
        turned = np.block([[cos, sin], [-sin, cos]])
        for name, kernel in (("query", turned), ("key", np.eye(columns))):
            path = ("encoder", "layer_0", "attention", name, "kernel")
            first = head * head_width
            of_head = flat[path].at[:, first : first + head_width].set(0.0)
            flat[path] = of_head.at[:columns, first : first + columns].set(
                gain * kernel
            )
    begun: Params = unflatten_dict(flat)
    return begun


INITIALIZERS: dict[str, Callable[[BertConfig, Params], Params]] = {
    "bert": lambda _, params: params,
    "deepnorm": deepnorm,
    "local": local,
}
"""By `BertConfig.initializer`: what is made of the parameters that BERT draws."""
