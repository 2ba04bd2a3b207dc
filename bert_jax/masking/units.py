"""What is hidden together: single tokens, whole words, or spans of words."""

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int, Key, UInt32

PRNGKey = Key[Array, ""] | UInt32[Array, "2"]


@struct.dataclass
class Chosen:
    """The positions of each row to predict, in as many slots a row."""

    positions: Int[Array, "B P"]
    """Distinct, in the unused slots too."""
    used: Bool[Array, "B P"]
    """The used slots come first."""
    leads: Bool[Array, "B P"]
    """Whether a slot draws the kind of its replacement; else it has that of the slot
    before it."""


def _previous(flags: Bool[Array, "B T"]) -> Bool[Array, "B T"]:
    return jnp.pad(flags, ((0, 0), (1, 0)))[:, :-1]


def word_starts(
    maskable: Bool[Array, "B T"], continues: Bool[Array, "B T"]
) -> Bool[Array, "B T"]:
    """Where a word starts: at a token that continues none, or none that is there.

    Truncation and [SEP] cut words; what is left of one counts as a word.
    """
    return maskable & ~(continues & _previous(maskable))


def span_starts(
    key: PRNGKey,
    maskable: Bool[Array, "B T"],
    words: Bool[Array, "B T"],
    probability: float,
    most: int,
) -> Bool[Array, "B T"]:
    """Where a span of words starts, all maskable tokens being cut into spans.

    A span ends after each of its words with this probability, after `most` words, and
    with its segment. This is Joshi et al. 2019, §3.1, in parallel: their lengths,
    geometric and clipped, but all spans of a row at once and none over another. (Their
    code draws a length above `most` anew, which makes the mean of 1 to 10 words 3.8;
    clipped, as here and as their text has it, it is 4.5.)
    """
    ends = jax.random.bernoulli(key, probability, words.shape)
    starts = words & (ends | ~_previous(maskable))
    number = jnp.cumsum(words, axis=1)
    words_before = number - jax.lax.cummax(jnp.where(starts, number, 0), axis=1)
    return words & (words_before % most == 0)


def unit_of(starts: Bool[Array, "B T"]) -> Int[Array, "B T"]:
    """For each token the position at which its unit starts."""
    position = jnp.arange(starts.shape[1])
    return jax.lax.cummax(jnp.where(starts, position, 0), axis=1)


def shuffle_units(
    key: PRNGKey, maskable: Bool[Array, "B T"], unit: Int[Array, "B T"]
) -> Int[Array, "B T"]:
    """Positions, unit by unit in a random order; those not maskable come last."""
    noise = jnp.take_along_axis(jax.random.uniform(key, unit.shape), unit, axis=1)
    # Stable, so that a unit stays in one piece even where its noise is another's too.
    return jnp.argsort(jnp.where(maskable, noise, 1.0), axis=1, stable=True)


def take_whole(
    first: Bool[Array, "B T"], size: Int[Array, "B T"], count: Int[Array, " B"]
) -> Bool[Array, "B T"]:
    """Take each unit in turn that fits into what is left of `count` tokens.

    Each round takes as many units as fit one after another, then drops the one that
    does not, and every other too large for the rest: few rounds instead of T steps.

    Args:
        first: where a unit starts, in the order in which they are to be taken.
        size: of each token's unit; above T for a token that is never to be taken.
    """

    def one_round(
        state: tuple[Bool[Array, "B T"], Bool[Array, "B T"]],
    ) -> tuple[Bool[Array, "B T"], Bool[Array, "B T"]]:
        taken, waiting = state
        left = (count - taken.sum(axis=1))[:, None]
        waiting &= size <= left
        total = jnp.cumsum(jnp.where(first & waiting, size, 0), axis=1)
        fits = waiting & (total <= left)
        return taken | fits, waiting & ~fits

    start = (jnp.zeros_like(first), jnp.ones_like(first))
    taken, _ = jax.lax.while_loop(lambda state: state[1].any(), one_round, start)
    return taken


def choose_tokens(
    key: PRNGKey, maskable: Bool[Array, "B T"], count: Int[Array, " B"], slots: int
) -> Chosen:
    """`count` of the maskable positions, each set equally likely.

    The exact top of uniform noise: distinct by construction.
    """
    noise = jnp.where(maskable, jax.random.uniform(key, maskable.shape), -1.0)
    _, positions = jax.lax.top_k(noise, slots)
    used = jnp.arange(slots) < jnp.minimum(count, maskable.sum(axis=1))[:, None]
    return Chosen(positions, used, leads=jnp.ones_like(used))


def choose_words(
    key: PRNGKey,
    maskable: Bool[Array, "B T"],
    words: Bool[Array, "B T"],
    count: Int[Array, " B"],
    slots: int,
) -> Chosen:
    """Whole words, at most `count` tokens, so that no word left out would fit.

    The words come in random order, and one that does not fit is skipped: whole word
    masking of google-research/bert, 2019.
    """
    length = words.shape[1]
    unit = unit_of(words)
    order = shuffle_units(key, maskable, unit)
    rows = jnp.arange(words.shape[0])[:, None]
    sizes = jnp.zeros_like(unit).at[rows, unit].add(maskable.astype(unit.dtype))
    size = jnp.where(maskable, jnp.take_along_axis(sizes, unit, axis=1), length + 1)
    taken = take_whole(
        jnp.take_along_axis(words, order, axis=1),
        jnp.take_along_axis(size, order, axis=1),
        count,
    )
    _, places = jax.lax.top_k(taken.astype(jnp.float32), slots)
    used = jnp.arange(slots) < taken.sum(axis=1)[:, None]
    positions = jnp.take_along_axis(order, places, axis=1)
    return Chosen(positions, used, leads=jnp.ones_like(used))


def choose_spans(
    key: PRNGKey,
    maskable: Bool[Array, "B T"],
    starts: Bool[Array, "B T"],
    count: Int[Array, " B"],
    slots: int,
) -> Chosen:
    """`count` tokens of spans in a random order; the last span is cut to fit."""
    positions = shuffle_units(key, maskable, unit_of(starts))[:, :slots]
    used = jnp.arange(slots) < jnp.minimum(count, maskable.sum(axis=1))[:, None]
    leads = jnp.take_along_axis(starts, positions, axis=1)
    return Chosen(positions, used, leads)
