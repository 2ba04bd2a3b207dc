"""Generate tokens one by one with a causal model, from buffers of keys and values.

The sublayers are those of `model/encoder.py`, each applied to one token.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.config import BertConfig
from bert_jax.config.model import Params
from bert_jax.model.attention import attention_probabilities
from bert_jax.model.encoder import FeedForward
from bert_jax.model.heads import MaskedLM
from bert_jax.model.layers import Dense, LayerNorm


@struct.dataclass
class Cache:
    """The keys and values of all positions so far, in each of L layers of N heads."""

    keys: Float[Array, "L S N H"]
    values: Float[Array, "L S N H"]


@struct.dataclass
class Sampling:
    """How the next token is drawn from the scores; all are arrays without axes."""

    temperature: Float[Array, ""]
    """Divides the scores; 0: the token with the highest score."""
    top_k: Int[Array, ""]
    """Draw from the k tokens with the highest scores; 0: from all."""
    top_p: Float[Array, ""]
    """Draw from the fewest tokens whose probabilities add up to at least this (Holtzman
    et al. 2020, §3.1); 1: from all."""


def empty_cache(config: BertConfig, length: int) -> Cache:
    """Return buffers for `length` positions."""
    heads = config.num_attention_heads
    shape = (config.num_hidden_layers, length, heads, config.hidden_size // heads)
    return Cache(*(jnp.zeros(shape, config.dtype) for _ in range(2)))


def next_token_scores(
    config: BertConfig,
    params: Params,
    token: Int[Array, ""],
    position: Int[Array, ""],
    cache: Cache,
) -> tuple[Float[Array, " V"], Cache]:
    """Return the scores of the token after this one, and the cache with this one.

    Args:
        cache: of all positions before `position`.
    """
    encoder: Any = params["encoder"]
    tables = encoder["embeddings"]
    total = (
        tables["token"]["embedding"][token]
        + tables["position"]["embedding"][position]
        + tables["segment"]["embedding"][0]
    )
    hidden = _apply(LayerNorm(config), tables["layer_norm"], total)
    hidden = hidden.astype(config.dtype)[None, None]
    for index in range(config.num_hidden_layers):
        layer = encoder[f"layer_{index}"]
        hidden, cache = _attend(
            config, layer["attention"], hidden, position, index, cache
        )
        hidden = _apply(
            FeedForward(config), layer["feed_forward"], hidden, deterministic=True
        )
    table = jnp.asarray(tables["token"]["embedding"])
    scores = _apply(MaskedLM(config), params["masked_lm"], hidden, table)
    return scores[0, 0], cache


def _apply(module: nn.Module, params: Any, *inputs: Array, **options: Any) -> Array:
    output: Any = module.apply({"params": params}, *inputs, **options)
    return jnp.asarray(output)


def _attend(
    config: BertConfig,
    params: Any,
    hidden: Float[Array, "1 1 D"],
    position: Int[Array, ""],
    index: int,
    cache: Cache,
) -> tuple[Float[Array, "1 1 D"], Cache]:
    """Return the hidden state after a layer's self-attention, and its cache."""

    def dense(name: str, inputs: Float[Array, "1 1 D"]) -> Float[Array, "1 1 D"]:
        return _apply(Dense(config.hidden_size, config), params[name], inputs)

    split = (1, 1, config.num_attention_heads, -1)
    query, key, value = (
        dense(name, hidden).reshape(split) for name in ("query", "key", "value")
    )
    cache = Cache(
        cache.keys.at[index, position].set(key[0, 0]),
        cache.values.at[index, position].set(value[0, 0]),
    )
    visible = jnp.arange(cache.keys.shape[1]) <= position
    probabilities = attention_probabilities(
        query, cache.keys[index][None], visible[None, None]
    ).astype(value.dtype)
    mixed = jnp.einsum("BNTS,BSNH->BTNH", probabilities, cache.values[index][None])
    output = dense("output", mixed.reshape(hidden.shape))
    hidden = _apply(LayerNorm(config), params["layer_norm"], hidden + output)
    return hidden.astype(config.dtype), cache


def sample(
    scores: Float[Array, " V"], sampling: Sampling, key: Key[Array, ""]
) -> Int[Array, ""]:
    """Return a token, drawn by its score; of equal scores the lower id comes first."""
    order = jnp.argsort(-scores, stable=True)
    ranked = scores[order]
    scaled = ranked / jnp.where(sampling.temperature > 0, sampling.temperature, 1.0)
    probabilities = jax.nn.softmax(scaled)
    before = jnp.cumsum(probabilities) - probabilities
    rank = jnp.arange(len(scores))
    kept = (rank < sampling.top_k) | (sampling.top_k == 0)
    # The first token is always kept.
    kept &= (before < sampling.top_p) | (rank == 0) | (sampling.top_p >= 1)
    drawn = jax.random.categorical(key, jnp.where(kept, scaled, -jnp.inf))
    return order[jnp.where(sampling.temperature > 0, drawn, 0)]


def generate(
    config: BertConfig,
    params: Params,
    tokens: Int[Array, " S"],
    prompt_length: Int[Array, ""],
    end: Int[Array, ""],
    allowed: Bool[Array, " V"],
    stop_id: Int[Array, ""],
    sampling: Sampling,
    key: Key[Array, ""],
) -> tuple[Int[Array, " S"], Int[Array, ""]]:
    """Continue a prompt; return all tokens, and their number.

    The number of steps is that of the tokens, not of the buffer's places: one program
    serves prompts and continuations of every length.

    Args:
        tokens: the prompt, [CLS] first, at the start of a buffer of S places.
        end: the largest number of tokens, at most S.
        allowed: which tokens may be generated.
        stop_id: the token after which nothing is generated.
        key: each position draws by a key folded from it.
    """

    def goes_on(state: tuple[Any, ...]) -> Bool[Array, ""]:
        position, tokens, _ = state
        is_stopped = (position >= prompt_length) & (tokens[position] == stop_id)
        return (position < end - 1) & ~is_stopped

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        position, tokens, cache = state
        scores, cache = next_token_scores(
            config, params, tokens[position], position, cache
        )
        scores = jnp.where(allowed, scores, -jnp.inf)
        drawn = sample(scores, sampling, jax.random.fold_in(key, position))
        position += 1
        following = jnp.where(position < prompt_length, tokens[position], drawn)
        return position, tokens.at[position].set(following), cache

    first = (jnp.int32(0), tokens, empty_cache(config, len(tokens)))
    position, tokens, _ = jax.lax.while_loop(goes_on, step, first)
    return tokens, position + 1
