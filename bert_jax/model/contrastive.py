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
    an equal text, and the partner of an equal text.

    Args:
        own: the pairs whose loss is computed.
        everyone: all pairs of the global batch.
        first: the row of `everyone` that is the first of `own`.
        dimensions: lengths to which vectors are cut, too; the loss is the mean of all.
    """
    num_pairs, num_texts, width = own.vectors.shape
    real = (own.ids[:, 0] >= 0).astype(jnp.float32)
    rows = first + jnp.arange(num_pairs)
    # [B, G]: whether another pair has the same first, or the same second text.
    same_first = own.ids[:, :1] == everyone.ids[:, 0]
    same_second = own.ids[:, 1:2] == everyone.ids[:, 1]
    # [B, G, C - 1]: what is right besides the pair's own second text.
    also_right = own.ids[:, 1, None, None] == everyone.ids[:, 1:]
    also_right = also_right.at[:, :, 0].set(same_first | same_second)
    also_right = (also_right | (everyone.ids[:, 1:] < 0)).reshape(num_pairs, -1)
    absent = everyone.ids[:, 0] < 0
    losses = []
    for size in (width, *dimensions):
        ours, theirs = unit(own.vectors[..., :size]), unit(everyone.vectors[..., :size])
        candidates = theirs[:, 1:].reshape(-1, size)
        targets = rows * (num_texts - 1)
        loss = _cross_entropy(ours[:, 0], candidates, targets, also_right, temperature)
        if symmetric:
            wrong = same_first | same_second | absent
            others = ours[:, 1], theirs[:, 0], rows, wrong
            loss = (loss + _cross_entropy(*others, temperature)) / 2
        losses.append(loss)
    return weighted_sum(jnp.stack(losses).mean(axis=0), real)


def _cross_entropy(
    texts: Float[Array, "B D"],
    candidates: Float[Array, "G D"],
    targets: Int[Array, " B"],
    left_out: Bool[Array, "B G"],
    temperature: float,
) -> Float[Array, " B"]:
    """Return -log softmax of the target, over the candidates that are not left out."""
    # On accelerators the default precision of a product is lower than float32.
    cosines = jnp.einsum("BD,GD->BG", texts, candidates, precision="highest")
    is_target = jnp.arange(len(candidates)) == targets[:, None]
    scores = jnp.where(left_out & ~is_target, -jnp.inf, cosines / temperature)
    return optax.softmax_cross_entropy_with_integer_labels(scores, targets)
