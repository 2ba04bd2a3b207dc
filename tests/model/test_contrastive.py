"""InfoNCE beside sums written out in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model.contrastive import Texts, info_nce

loss_of = jax.jit(info_nce, static_argnums=(3, 4, 5))
IDS = np.array([[0, 1, 2], [3, 4, 5], [0, 6, 7], [8, 4, 9], [10, 11, 1]], np.int32)
"""Pairs 0 and 2 have one first text, 1 and 3 one second text, and the negative of pair
4 is the second text of pair 0."""


def texts(ids=IDS, width=8):
    drawn = np.random.default_rng(0).standard_normal((*ids.shape, width), np.float32)
    # The vectors of equal texts differ by dropout.
    return Texts(jnp.asarray(drawn), jnp.asarray(ids))


def is_right(ids, i, j, c):
    """Whether text c of pair j belongs to the first text of pair i."""
    same_text = ids[j, c] == ids[i, 1]
    return same_text or (c == 1 and ids[j, 0] == ids[i, 0])


def by_hand(one, temperature, size=None, backward=False):
    """The mean loss, sum by sum."""
    vectors = np.float64(one.vectors[..., :size])
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    total = 0.0
    for i in range(len(one.ids)):
        own, partner = (1, 0) if backward else (0, 1)
        score = vectors[i, own] @ vectors[i, partner] / temperature
        weights = [np.exp(score)]
        for j in range(len(one.ids)):
            for c in [0] if backward else range(1, one.ids.shape[1]):
                if backward:
                    same = (one.ids[j, :2] == one.ids[i, :2]).any()
                else:
                    same = is_right(one.ids, i, j, c)
                if not same:
                    cosine = vectors[i, own] @ vectors[j, c]
                    weights.append(np.exp(cosine / temperature))
        total += np.log(np.sum(weights)) - score
    return total


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_the_loss_by_hand(temperature):
    one = texts()
    total, count = map(float, loss_of(one, one, 0, temperature))
    assert count == 5
    assert total == pytest.approx(by_hand(one, temperature), rel=1e-5)
    backward = by_hand(one, temperature, backward=True)
    both, _ = loss_of(one, one, 0, temperature, True)
    assert both == pytest.approx((total + backward) / 2, rel=1e-5)
    cut, _ = loss_of(one, one, 0, temperature, False, (4, 2))
    sizes = [by_hand(one, temperature, size) for size in (8, 4, 2)]
    assert len({round(size, 3) for size in sizes}) == 3
    assert cut == pytest.approx(np.mean(sizes), rel=1e-5)


def test_a_part_of_the_rows_against_all():
    one = texts()
    whole, _ = loss_of(one, one, 0, 0.1, True, (4,))
    parts = [
        loss_of(
            jax.tree.map(lambda x, at=at: x[at], one), one, at.start, 0.1, True, (4,)
        )
        for at in (slice(0, 2), slice(2, 5))
    ]
    assert sum(float(total) for total, _ in parts) == pytest.approx(
        float(whole), rel=1e-6
    )


def test_padding_changes_nothing():
    one = texts()
    vectors = np.concatenate([one.vectors, np.zeros_like(one.vectors[:2])])
    ids = np.concatenate([IDS, np.full_like(IDS[:2], -1)])
    padded = Texts(jnp.asarray(vectors), jnp.asarray(ids))
    for symmetric in (False, True):
        expected, _ = loss_of(one, one, 0, 0.1, symmetric)
        total, count = loss_of(padded, padded, 0, 0.1, symmetric)
        assert count == 5
        assert total == pytest.approx(float(expected), rel=1e-6)
        gradient = jax.grad(
            lambda v, s=symmetric: loss_of(
                Texts(v, padded.ids), Texts(v, padded.ids), 0, 0.1, s
            )[0]
        )(padded.vectors)
        assert np.isfinite(gradient).all()
