"""InfoNCE beside sums written out in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model.contrastive import Texts, info_nce, num_wrong_choices

loss_of = jax.jit(info_nce, static_argnums=(3, 4, 5))
IDS = np.array([[0, 1, 2], [3, 4, 5], [0, 6, 7], [8, 4, 9], [10, 11, 1]], np.int32)
"""Pairs 0 and 2 have one first text, 1 and 3 one second text, and the negative of pair
4 is the second text of pair 0."""


def texts(ids=IDS, width=8):
    drawn = np.random.default_rng(0).standard_normal((*ids.shape, width), np.float32)
    # The vectors of equal texts differ by dropout.
    return Texts(jnp.asarray(drawn), jnp.asarray(ids))


def belongs(ids, text, other):
    """Whether two texts are equal, or the two of a pair."""
    pairs = ids[:, :2].tolist()
    return text == other or [text, other] in pairs or [other, text] in pairs


def by_hand(one, temperature, size=None, backward=False):
    """The total loss, sum by sum."""
    vectors = np.float64(one.vectors[..., :size])
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    ids, total = np.asarray(one.ids), 0.0
    for i in range(len(ids)):
        own, partner = (1, 0) if backward else (0, 1)
        score = vectors[i, own] @ vectors[i, partner] / temperature
        weights = [np.exp(score)]
        for j in range(len(ids)):
            for c in [0] if backward else range(1, ids.shape[1]):
                is_wrong = not belongs(ids, ids[i, own], ids[j, c])
                if i == j and c > 1:
                    is_wrong = ids[i, c] != ids[i, 1]
                if is_wrong:
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


REPEATED = {
    "a partner": [[0, 1], [0, 2], [3, 4]],
    "a partner in a third pair": [[0, 1], [0, 2], [3, 2]],
    "the other way round": [[0, 1], [1, 0]],
    "a chain": [[0, 1], [1, 2], [3, 0]],
    "a partner as a hard negative": [[0, 1, 5], [0, 2, 6], [3, 4, 2]],
    "the text as a hard negative": [[0, 1, 5], [3, 4, 0], [7, 4, 8]],
    "an own hard negative": [[0, 1, 2], [0, 2, 4], [3, 5, 1]],
    "the second text as an own hard negative": [[0, 1, 1], [2, 3, 4]],
}


@pytest.mark.parametrize("ids", REPEATED.values(), ids=REPEATED.keys())
@pytest.mark.parametrize("symmetric", [False, True])
def test_texts_that_belong_together_are_not_wrong(ids, symmetric):
    one = texts(np.array(ids, np.int32))
    total, _ = loss_of(one, one, 0, 0.1, symmetric)
    expected = by_hand(one, 0.1)
    if symmetric:
        expected = (expected + by_hand(one, 0.1, backward=True)) / 2
    assert total == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_partner_of_an_equal_text_has_no_weight():
    """The pair (q, d1) is not pushed from d2, whatever other pair has d2."""
    ids = np.array([[0, 1, 7], [0, 2, 8], [3, 2, 9], [4, 5, 2]], np.int32)
    one = texts(ids)
    near = one.vectors.at[np.nonzero(ids == 2)].set(one.vectors[0, 0])
    alone = jax.tree.map(lambda x: x[:1], one)
    far = one.vectors.at[np.nonzero(ids == 2)].set(-one.vectors[0, 0])
    losses = [
        float(loss_of(alone, Texts(vectors, one.ids), 0, 0.05)[0])
        for vectors in (near, far)
    ]
    assert losses[0] == losses[1] > 0


def test_the_wrong_choices_are_counted():
    one = texts(np.array([[0, 1], [0, 2], [3, 2], [-1, -1]], np.int32))
    assert list(map(float, num_wrong_choices(one, one, 0))) == [1.0, 3.0]
    same = texts(np.array([[0, 1], [2, 1]], np.int32))
    assert list(map(float, num_wrong_choices(same, same, 0))) == [0.0, 2.0]
    assert float(loss_of(same, same, 0, 0.05, True)[0]) == 0.0


def random_ids(seed, num_pairs=40, num_texts=12):
    """Many repeats of few texts, and padding."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(0, num_texts, (num_pairs, 4)).astype(np.int32)
    ids[-2:] = -1
    return ids


@pytest.mark.parametrize("seed", range(3))
def test_many_repeats_by_hand(seed):
    ids = random_ids(seed)
    one = texts(ids)
    total, count = loss_of(one, one, 0, 0.3, True)
    real = jax.tree.map(lambda x: x[:-2], one)
    both = by_hand(real, 0.3) + by_hand(real, 0.3, backward=True)
    assert count == len(ids) - 2
    assert total == pytest.approx(both / 2, rel=1e-5)


@pytest.mark.parametrize(("symmetric", "matrices"), [(False, 3), (True, 5)])
def test_memory_of_a_large_batch(symmetric, matrices):
    """The cosines of a direction and their gradient; which texts belong takes less."""
    rows = 1024

    def gradient(vectors, ids):
        one = Texts(vectors, ids)
        return jax.grad(lambda v: info_nce(Texts(v, ids), one, 0, 1.0, symmetric)[0])(
            vectors
        )

    shapes = ((rows, 2, 16), jnp.float32), ((rows, 2), jnp.int32)
    lowered = jax.jit(gradient).lower(*(jax.ShapeDtypeStruct(*s) for s in shapes))
    used = lowered.compile().memory_analysis().temp_size_in_bytes
    assert used < matrices * 4 * rows**2
