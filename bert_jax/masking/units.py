"""Choose whole words, or spans of words, to mask."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, UInt32

PRNGKey = Key[Array, ""] | UInt32[Array, "2"]
MaskedPositions = tuple[Int[Array, "B P"], Bool[Array, "B P"], Bool[Array, "B P"]]
"""For each row and slot: the position to predict, whether the slot is used, and whether
it leads, as `choose_positions` in `masking/batch.py` describes."""


def _shift_right(flags: Bool[Array, "B T"]) -> Bool[Array, "B T"]:
    """The flag of the token before; False for the first token."""
    return jnp.pad(flags, ((0, 0), (1, 0)))[:, :-1]


def word_starts(
    maskable: Bool[Array, "B T"], continues: Bool[Array, "B T"]
) -> Bool[Array, "B T"]:
    """Whether a word starts at each token; only maskable tokens start words.

    A word that truncation or [SEP] has cut starts at its first remaining token.
    """
    return maskable & ~(continues & _shift_right(maskable))


def span_starts(
    key: PRNGKey,
    maskable: Bool[Array, "B T"],
    words: Bool[Array, "B T"],
    probability: float,
    max_words: int,
) -> Bool[Array, "B T"]:
    """Divide all maskable tokens into spans of words; return where spans start.

    A span ends after each of its words with `probability`, after `max_words` words, and
    at the end of its segment; `words` are the starts of words. These are the lengths of
    Joshi et al. 2019, §3.1 (geometric, clipped), but all spans of a row are sampled in
    parallel and do not overlap. (Their text clips, with a mean of 4.5 words for 1 to
    10; their code resamples lengths above the maximum, with a mean of 3.8.)
    """
    # A geometric length: each word starts a new span with `probability`.
    starts_span = jax.random.bernoulli(key, probability, words.shape)
    starts = words & (starts_span | ~_shift_right(maskable))
    # Clip: split longer spans after every `max_words` words.
    word_number = jnp.cumsum(words, axis=1)
    first_word = jax.lax.cummax(jnp.where(starts, word_number, 0), axis=1)
    return words & ((word_number - first_word) % max_words == 0)


def unit_starts(starts: Bool[Array, "B T"]) -> Int[Array, "B T"]:
    """The position at which the unit of each token starts."""
    positions = jnp.arange(starts.shape[1])
    return jax.lax.cummax(jnp.where(starts, positions, 0), axis=1)


def unit_sizes(
    maskable: Bool[Array, "B T"], unit: Int[Array, "B T"]
) -> Int[Array, "B T"]:
    """Return the number of maskable tokens of the unit of each token."""
    # Count the tokens of each unit at its start, then copy to all its tokens.
    rows = jnp.arange(unit.shape[0])[:, None]
    sizes = jnp.zeros_like(unit).at[rows, unit].add(maskable.astype(unit.dtype))
    return jnp.take_along_axis(sizes, unit, axis=1)


def unreachable_share(
    maskable: Bool[Array, "B T"], continues: Bool[Array, "B T"], count: Int[Array, " B"]
) -> float:
    """Return the fraction of tokens in words longer than the `count` of their row."""
    size = unit_sizes(maskable, unit_starts(word_starts(maskable, continues)))
    unreachable = maskable & (size > count[:, None])
    return float(unreachable.sum() / jnp.maximum(maskable.sum(), 1))


def shuffle_units(
    key: PRNGKey, maskable: Bool[Array, "B T"], unit: Int[Array, "B T"]
) -> Int[Array, "B T"]:
    """Positions with the units in random order; positions not maskable come last."""
    # All tokens of a unit get the noise of its first token.
    noise = jnp.take_along_axis(jax.random.uniform(key, unit.shape), unit, axis=1)
    # A stable sort keeps a unit together even if another unit has the same noise.
    return jnp.argsort(jnp.where(maskable, noise, 1.0), axis=1, stable=True)


def select_whole_units(
    first: Bool[Array, "B T"], size: Int[Array, "B T"], count: Int[Array, " B"]
) -> Bool[Array, "B T"]:
    """Return which tokens to select, by whole units in order, `count` per row at most.

    Each round selects units until one does not fit, then drops all units that are too
    large for the remaining tokens. That takes a few rounds instead of T steps. A unit
    starts at each token of `first`; its size is above T if it must never be selected.
    """

    def one_round(
        state: tuple[Bool[Array, "B T"], Bool[Array, "B T"]],
    ) -> tuple[Bool[Array, "B T"], Bool[Array, "B T"]]:
        selected, candidates = state
        remaining = (count - selected.sum(axis=1))[:, None]
        candidates &= size <= remaining
        # The tokens up to and including each candidate unit.
        total = jnp.cumsum(jnp.where(first & candidates, size, 0), axis=1)
        fits = candidates & (total <= remaining)
        return selected | fits, candidates & ~fits

    # Every round drops a candidate at least, the first that did not fit.
    start = (jnp.zeros_like(first), jnp.ones_like(first))
    selected, _ = jax.lax.while_loop(lambda state: state[1].any(), one_round, start)
    return selected


def choose_words(
    key: PRNGKey,
    maskable: Bool[Array, "B T"],
    words: Bool[Array, "B T"],
    count: Int[Array, " B"],
    slots: int,
) -> MaskedPositions:
    """Choose whole words in random order, at most `count` tokens per row.

    A word that does not fit is skipped, as in the whole word masking of
    google-research/bert, 2019.
    """
    length = words.shape[1]
    unit = unit_starts(words)
    order = shuffle_units(key, maskable, unit)
    # Special tokens and padding are in no word, and never fit.
    size = jnp.where(maskable, unit_sizes(maskable, unit), length + 1)
    selected = select_whole_units(
        jnp.take_along_axis(words, order, axis=1),
        jnp.take_along_axis(size, order, axis=1),
        count,
    )
    # Move the selected tokens to the first slots.
    _, places = jax.lax.top_k(selected.astype(jnp.float32), slots)
    used = jnp.arange(slots)[None] < selected.sum(axis=1)[:, None]
    positions = jnp.take_along_axis(order, places, axis=1)
    return positions, used, jnp.ones_like(used)


def choose_spans(
    key: PRNGKey,
    maskable: Bool[Array, "B T"],
    starts: Bool[Array, "B T"],
    count: Int[Array, " B"],
    slots: int,
) -> MaskedPositions:
    """Choose `count` tokens of spans in random order; the last span is cut to fit."""
    positions = shuffle_units(key, maskable, unit_starts(starts))[:, :slots]
    used = jnp.arange(slots)[None] < jnp.minimum(count, maskable.sum(axis=1))[:, None]
    leads = jnp.take_along_axis(starts, positions, axis=1)
    return positions, used, leads
