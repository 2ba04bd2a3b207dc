"""Generate tokens one by one with a causal model, from caches of keys and values."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from bert_jax.config import BertConfig
from bert_jax.config.model import Params
from bert_jax.model.bert import Bert


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


def empty_cache(config: BertConfig, length: int) -> PyTree:
    """Return each layer's cache of the keys and values of `length` positions."""
    key, zero = jax.random.key(0), jnp.int32(0)
    init = functools.partial(Bert(config).init, method="next_token_scores")
    shapes = jax.eval_shape(lambda: init(key, zero, zero, length)["cache"])
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def next_token_scores(
    config: BertConfig,
    params: Params,
    token: Int[Array, ""],
    position: Int[Array, ""],
    cache: PyTree,
) -> tuple[Float[Array, " V"], PyTree]:
    """Return the scores of the token after this one, and the cache with this one.

    The cache has all positions before `position`.
    """
    length = jax.tree.leaves(cache)[0].shape[1]
    scores, stored = Bert(config).apply(
        {"params": params, "cache": cache},
        token,
        position,
        length,
        method="next_token_scores",
        mutable=["cache"],
    )
    return scores, stored["cache"]


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

    The prompt, [CLS] first, is at the start of a buffer of S places. The number of
    steps is that of the tokens, `end` at most, not of the buffer's places: one program
    serves prompts and continuations of every length. Tokens that are `allowed` are
    generated, none after `stop_id`; each position draws by a key folded from `key`.
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
