"""First values of the layers' parameters that let a small budget learn more from it.

The tensors and their computation stay BERT's.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax.config import BertConfig

OFFSETS = {"bidirectional": (-1, 1, -2, 2), "causal": (-1, -2, -3, -4)}
"""The neighbours that heads of the first layer attend to, by the mask of attention."""
SHARPNESS = 6.0
"""By how many nats the neighbour's score exceeds the score of a distant token."""
HIGHEST, LOWEST = 3.0, 0.1
"""Frequencies of the waves, in radians a token: a neighbour differs from the next one,
and from tokens some tens away."""
OTHER_SEGMENT = 2.0
"""How much the score of a token of the other segment is above the mean of both."""
CUT = 0.88
"""The deviation of a normal that is cut at ±2σ, in σ."""
POSITIONS = "encoder", "embeddings", "position", "embedding"
SEGMENTS = "encoder", "embeddings", "segment", "embedding"
Flat = dict[tuple[str, ...], Any]
"""Parameters by their paths."""


def deepnorm(config: BertConfig, flat: Flat) -> Flat:
    """Scale the initial kernels of the layers as DeepNorm does (Wang et al. 2022, §3).

    DeepNorm computes LayerNorm(α x + G(x)), α = (2L)^¼, and draws the kernels of values
    and outputs of attention and both of the feed-forward layer β = (8L)^-¼ times as
    large. LayerNorm does not see the scale of its input, so that this is
    LayerNorm(x + G(x) / α): the last kernel of each branch is divided by α.
    """
    layers = config.num_hidden_layers
    alpha, beta = (2 * layers) ** 0.25, (8 * layers) ** -0.25
    inner, last = beta, beta / alpha
    scales: dict[tuple[str, ...], float] = {
        ("attention", "value"): inner,
        ("attention", "output"): last,
        ("feed_forward", "in"): inner,
        ("feed_forward", "out"): last,
    }
    for path, leaf in flat.items():
        if path[0] == "encoder" and path[-1] == "kernel":
            flat[path] = leaf * scales.get(path[-3:-1], 1.0)
    return flat


def local(config: BertConfig, flat: Flat) -> Flat:
    """Let heads of the first layer attend to one neighbour each from the first step.

    A trained BERT has such heads (Clark et al. 2019, §3.1), and a small budget spends
    much of its time on finding them. Positions begin as waves, as large as tokens, in
    as many columns as a head has; a step to a neighbour turns them (Vaswani et al.
    2017, §3.5). A head's keys begin as these columns, and its queries as the same
    columns turned by its offset, so that their product is highest there. A layer has
    at most four such heads. All else begins as DeepNorm's.
    """
    flat = _with_waves(config, deepnorm(config, flat))
    offsets = OFFSETS[config.attention][: config.num_attention_heads]
    for head, offset in enumerate(offsets):
        _look_at_neighbour(config, flat, 0, head, offset)
    return flat


def matching(config: BertConfig, flat: Flat) -> Flat:
    """Let some heads attend to neighbours, others to the same token elsewhere.

    Whether two segments belong together shows in the tokens that both have. The first
    layer must find them, if [CLS] is to read them from the second of two: it begins
    with two heads that do, and two for the nearest neighbours. The second layer, which
    residual connections give the positions too, has two for the next ones.
    """
    flat = _with_waves(config, deepnorm(config, flat))
    for number, offset in enumerate(OFFSETS["bidirectional"]):
        layer, head = divmod(number, 2)
        if layer < config.num_hidden_layers:
            _look_at_neighbour(config, flat, layer, head, offset)
    for head in range(2, min(4, config.num_attention_heads)):
        _look_for_itself(config, flat, head)
    return flat


def _frequencies(config: BertConfig) -> Float[np.ndarray, " half"]:
    """Return the frequencies of the waves: one for each pair of a head's columns."""
    return np.geomspace(HIGHEST, LOWEST, _head_width(config) // 2)


def _head_width(config: BertConfig) -> int:
    return config.hidden_size // config.num_attention_heads


def _with_waves(config: BertConfig, flat: Flat) -> Flat:
    """Return parameters whose positions begin as waves, as large as tokens."""
    frequencies = _frequencies(config)
    columns = 2 * len(frequencies)
    angles = np.arange(config.max_position_embeddings)[:, None] * frequencies
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    amplitude = (
        (2 * config.hidden_size / columns) ** 0.5 * CUT * config.initializer_range
    )
    waves = (amplitude * waves).astype(np.float32)
    table = jnp.zeros_like(flat[POSITIONS]).at[:, :columns].set(waves)
    return flat | {POSITIONS: table}


def _gain(config: BertConfig, score: float, product: float) -> float:
    """Return the factor of a query and of a key for a score, by their product.

    LayerNorm divides by the deviation of a token, a position and a segment, so that
    each of them adds a third to the variance of 1 of a column.
    """
    return float((score * _head_width(config) ** 0.5 / product) ** 0.5)


def _look_at_neighbour(
    config: BertConfig, flat: Flat, layer: int, head: int, offset: int
) -> None:
    """Let a head attend to the token `offset` further on."""
    frequencies = _frequencies(config)
    columns = 2 * len(frequencies)
    gain = _gain(config, SHARPNESS, config.hidden_size / 3)
    cos, sin = (np.diag(wave(offset * frequencies)) for wave in (np.cos, np.sin))
    turned = np.block([[cos, sin], [-sin, cos]])
    for name, columns_of_head in (("query", turned), ("key", np.eye(columns))):
        kernel = jnp.zeros((config.hidden_size, _head_width(config)))
        kernel = kernel.at[:columns, :columns].set(gain * columns_of_head)
        _set_head(flat, layer, name, head, kernel)


def _look_for_itself(config: BertConfig, flat: Flat, head: int) -> None:
    """Let a head of the first layer attend to its token in the other segment.

    Queries and keys have three parts. One is the same random projection of tokens, of
    which the product is highest for the same token; it leaves out the waves and both
    segments. With the waves of positions, of opposite sign, a token's product with
    itself is 0. With the difference of the segments, of opposite sign, it is larger
    for tokens of the other one.
    """
    size, width = config.hidden_size, _head_width(config)
    num_tokens = width // 2 - 1
    segments, first = flat[SEGMENTS], head * width
    queries = flat["encoder", "layer_0", "attention", "query", "kernel"]
    drawn = queries[:, first : first + num_tokens].T
    rows = jnp.stack([segments[0] - segments[1], segments[0] + segments[1], *drawn])
    basis = jnp.linalg.qr(rows.at[:, :width].set(0.0).T)[0]
    tokens = _gain(config, SHARPNESS, num_tokens / 3) * basis[:, 2:]
    segment = _gain(config, OTHER_SEGMENT, size / 6) * basis[:, 0]

    num_frequencies = len(_frequencies(config))
    some = np.arange(0, num_frequencies, 2)[: width // 4]
    chosen = np.concatenate([some, some + num_frequencies])
    share = len(chosen) / (2 * num_frequencies)
    wave = _gain(config, SHARPNESS, share * size / 3)
    for name, sign in (("query", -1.0), ("key", 1.0)):
        kernel = jnp.zeros((size, width)).at[:, :num_tokens].set(tokens)
        kernel = kernel.at[:, num_tokens].set(sign * segment)
        places = num_tokens + 1 + np.arange(len(chosen))
        kernel = kernel.at[chosen, places].set(sign * wave)
        _set_head(flat, 0, name, head, kernel)


def _set_head(
    flat: Flat, layer: int, name: str, head: int, kernel: Float[Array, "D H"]
) -> None:
    """Set the columns of a head in the kernel of queries or keys."""
    path = "encoder", f"layer_{layer}", "attention", name, "kernel"
    first = head * kernel.shape[1]
    columns = slice(first, first + kernel.shape[1])
    flat[path] = flat[path].at[:, columns].set(kernel.astype(flat[path].dtype))


INITIALIZERS: dict[str, Callable[[BertConfig, Flat], Flat]] = {
    "bert": lambda _, flat: flat,
    "deepnorm": deepnorm,
    "local": local,
    "matching": matching,
}
"""By `BertConfig.initializer`: what is made of the parameters that BERT draws."""
