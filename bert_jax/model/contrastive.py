"""InfoNCE: which of many texts belongs to another, by the similarity of vectors.

van den Oord et al. 2018, §2.3; with the other texts of the batch as the wrong ones,
Henderson et al. 2017, §4.4; with several lengths of vectors, Kusupati et al. 2022, §3.
"""

import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from bert_jax.model.heads import unit
from bert_jax.model.losses import Sum, weighted_sum


@struct.dataclass
class Texts:
    """The vectors of the C texts of each row: first, second, and hard negatives."""

    vectors: Float[Array, "*parts B C D"]
    """Not normalised."""
    ids: Int[Array, "*parts B C"]
    """The number of the text; equal texts have equal numbers, and padding has -1."""


def info_nce(
    own: Texts,
    everyone: Texts,
    first: Int[Array, ""] | int,
    temperature: float,
    symmetric: bool = False,
    dimensions: tuple[int, ...] = (),
) -> Sum:
    """Return the total cross-entropy in nats of some pairs, and their number.

    For each first text, the softmax is over the second texts and hard negatives of
    `everyone`. With `symmetric`, the loss is the mean of this and of finding the first
    text among all first ones. What also belongs to the text is never a wrong choice:
    an equal text, and one that is in a pair with an equal text anywhere in `everyone`,
    on either side. The hard negatives of a pair's own row are wrong choices, unless
    equal to its second text. A pair that has no wrong choice has a loss of 0.

    Args:
        own: the pairs whose loss is computed.
        everyone: all pairs of the global batch.
        first: the row of `everyone` that is the first of `own`.
        dimensions: lengths to which vectors are cut, too; the loss is the mean of all.
    """
    num_pairs, num_texts, width = own.vectors.shape
    real = (own.ids[:, 0] >= 0).astype(jnp.float32)
    rows = first + jnp.arange(num_pairs)
    wrong = _wrong_choices(own.ids, everyone.ids, rows)
    losses = []
    for size in (width, *dimensions):
        ours, theirs = unit(own.vectors[..., :size]), unit(everyone.vectors[..., :size])
        candidates = theirs[:, 1:].reshape(-1, size)
        targets = rows * (num_texts - 1)
        loss = _cross_entropy(ours[:, 0], candidates, targets, wrong, temperature)
        if symmetric:
            backward = ~_belongs(own.ids[:, 1], everyone.ids[:, 0], everyone.ids)
            other = _cross_entropy(
                ours[:, 1], theirs[:, 0], rows, backward, temperature
            )
            loss = (loss + other) / 2
        losses.append(loss)
    return weighted_sum(jnp.stack(losses).mean(axis=0), real)


def num_wrong_choices(own: Texts, everyone: Texts, first: Int[Array, ""] | int) -> Sum:
    """Return the total number of wrong choices of some pairs, and that of the pairs.

    Args and choices are those of `info_nce`; those of `symmetric` are not counted.
    """
    real = (own.ids[:, 0] >= 0).astype(jnp.float32)
    rows = first + jnp.arange(len(own.ids))
    wrong = _wrong_choices(own.ids, everyone.ids, rows)
    return weighted_sum(wrong.sum(axis=1, dtype=jnp.float32), real)


def _wrong_choices(
    own: Int[Array, "B C"], everyone: Int[Array, "G C"], rows: Int[Array, " B"]
) -> Bool[Array, "B _"]:
    """Return which second texts and hard negatives do not belong to each first text.

    The texts are given by their numbers; `rows` are the places of `own` in `everyone`.
    """
    choices = everyone[:, 1:]
    wrong = ~_belongs(own[:, 0], choices.reshape(-1), everyone)
    wrong = wrong.reshape(len(own), *choices.shape)
    # What a row itself names as a negative is one, whatever other rows say.
    is_own_row = rows[:, None, None] == jnp.arange(len(everyone))[:, None]
    is_negative = jnp.arange(choices.shape[1]) > 0
    differs = own[:, 1, None, None] != choices
    wrong |= is_own_row & is_negative & differs & (choices >= 0)
    return wrong.reshape(len(own), -1)


def _belongs(
    texts: Int[Array, " B"], choices: Int[Array, " N"], pairs: Int[Array, "G C"]
) -> Bool[Array, "B N"]:
    """Return whether each choice is equal to a text, or in a pair with it, or padding.

    All arguments are numbers of texts; the first two of a row of `pairs` are a pair.
    """
    # [N]: for each choice, a place that equal ones share.
    in_order = jnp.sort(choices)
    place = jnp.searchsorted(in_order, choices)
    partners = jnp.zeros((len(choices), len(texts)), bool)
    for here, there in ((0, 1), (1, 0)):
        # [G, B]: whether a text is on this side of a pair, whose other side is marked.
        is_here = pairs[:, here, None] == texts
        other = pairs[:, there]
        at = jnp.minimum(jnp.searchsorted(in_order, other), len(choices) - 1)
        is_choice = in_order[at] == other
        partners = partners.at[at].max(is_here & is_choice[:, None])
    return partners[place].T | (texts[:, None] == choices) | (choices < 0)


def _cross_entropy(
    texts: Float[Array, "B D"],
    candidates: Float[Array, "G D"],
    targets: Int[Array, " B"],
    wrong: Bool[Array, "B G"],
    temperature: float,
) -> Float[Array, " B"]:
    """Return -log softmax of the target, over it and the candidates that are wrong."""
    # On accelerators the default precision of a product is lower than float32.
    cosines = jnp.einsum("BD,GD->BG", texts, candidates, precision="highest")
    is_target = jnp.arange(len(candidates)) == targets[:, None]
    scores = jnp.where(wrong | is_target, cosines / temperature, -jnp.inf)
    return optax.softmax_cross_entropy_with_integer_labels(scores, targets)
