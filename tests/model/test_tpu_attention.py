"""The TPU's attention kernels, run as JAX operations, beside plain attention."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model.attention import Visibility, plain_attention
from bert_jax.model.attention_blocks import BlockPlan
from bert_jax.model.tpu_attention import tpu_attention

HIDDEN = {2: 128, 1: 128, 12: 312}
"""Number of heads → hidden size: two heads of a block, one, and all in one."""


def hashed_bits(first_seed, second_seed, shape):
    """Random words for the tests: the TPU's generator has no counterpart here."""
    count = jnp.arange(shape[0] * shape[1], dtype=jnp.uint32).reshape(shape)
    words = count * jnp.uint32(2654435761) + first_seed.astype(jnp.uint32)
    for shift in (15, 13, 16):
        words = (words ^ (words >> shift)) * jnp.uint32(2246822519)
        words = words + second_seed.astype(jnp.uint32)
    return words


def make_inputs(rows, length, num_heads, dtype=jnp.float32):
    """Return query, key and value, and a mask with padding at the end."""
    keys = jax.random.split(jax.random.key(0), 3)
    shape = (rows, length, HIDDEN[num_heads])
    arrays = [jax.random.normal(key, shape).astype(dtype) for key in keys]
    lengths = jnp.linspace(length // 2, length, rows).astype(int)
    return arrays, jnp.arange(length) < lengths[:, None]


def pairs_of(mask):
    """Return pair ids: three pairs of a row, then padding."""
    position = jnp.arange(mask.shape[1])
    third = mask.sum(1, keepdims=True) // 3
    return jnp.where(mask, 1 + (position >= third) + (position >= 2 * third), 0)


def outcome(attend, mask, arrays):
    """Return the output of real tokens, and gradients of a function of it."""

    def loss(arrays):
        output = jnp.where(mask[..., None], attend(*arrays), 0)
        return (output.astype(jnp.float32) ** 3).sum(), output

    grads, output = jax.jit(jax.grad(loss, has_aux=True))(arrays)
    return [output, *grads]


def compare(num_heads, length, rows, dtype, causal, packed, tolerance):
    arrays, mask = make_inputs(rows, length, num_heads, dtype)
    pair_ids = pairs_of(mask) if packed else None
    visibility = Visibility(mask, pair_ids, causal)
    plain = functools.partial(
        plain_attention, visibility=visibility, num_heads=num_heads, dropout=lambda p: p
    )
    fused = functools.partial(
        tpu_attention,
        attention_mask=mask,
        pair_ids=pair_ids,
        seeds=None,
        num_heads=num_heads,
        causal=causal,
        interpret=True,
    )
    expected, actual = outcome(plain, mask, arrays), outcome(fused, mask, arrays)
    for one, other in zip(expected, actual, strict=True):
        one, other = (np.asarray(x, np.float32) for x in (one, other))
        assert np.abs(one).max() > 0.1
        np.testing.assert_allclose(
            other / np.abs(one).max(), one / np.abs(one).max(), atol=tolerance
        )


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("num_heads", "length", "rows", "causal", "packed"),
    [
        slow(2, 128, 6, False, False),
        slow(2, 128, 6, True, False),
        slow(2, 128, 6, False, True),
        (2, 128, 6, True, True),
        slow(1, 256, 2, False, True),
        slow(12, 128, 2, False, False),
        slow(2, 1024, 1, False, False),
        slow(2, 1024, 1, True, True),
    ],
)
def test_it_is_plain_attention(num_heads, length, rows, causal, packed):
    """To the rounding of float32 sums over up to 1,024 keys, 2e-6 of the largest value:
    the kernel adds up in float32 always.
    """
    compare(num_heads, length, rows, jnp.float32, causal, packed, 1e-5)


@pytest.mark.parametrize("packed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_it_is_plain_attention_in_bfloat16(packed):
    """Probabilities, their products and the output are rounded, by 2^-9 each, and so
    are their gradients; where a mask or a sum is wrong, float32 finds it.
    """
    compare(2, 128, 4, jnp.bfloat16, False, packed, 2**-3)


def test_a_token_without_a_visible_key_attends_evenly_and_has_no_gradient():
    (query, key, value), mask = make_inputs(2, 128, 2)
    mask = mask.at[0].set(False)

    def output(query):
        options = {"num_heads": 2, "interpret": True}
        return tpu_attention(query, key, value, mask, None, None, **options)

    mean = np.broadcast_to(value[0].mean(0), value[0].shape)
    np.testing.assert_allclose(output(query)[0], mean, atol=1e-5)
    grad = jax.grad(lambda query: (output(query) ** 2).sum())(query)
    assert not grad[0].any() and jnp.isfinite(grad).all() and grad[1].any()


def dropped(rate, length=128, rows=4, seeds=(3, 4), num_heads=2):
    """Return attention of equal scores to values of ones."""
    query = jnp.zeros((rows, length, HIDDEN[num_heads]))
    value = jnp.ones_like(query)
    options = {
        "num_heads": num_heads,
        "rate": rate,
        "draw": hashed_bits,
        "interpret": True,
    }
    return tpu_attention(
        query,
        query,
        value,
        jnp.ones((rows, length), bool),
        None,
        jnp.array(seeds, jnp.int32),
        **options,
    )


def test_dropout_keeps_the_mean_and_drops_its_share():
    output = np.asarray(dropped(0.25, rows=8))
    heads = output.reshape(8, 128, 2, 64)[..., 0]
    assert heads.mean() == pytest.approx(1, abs=0.01)
    # Of 128 keys 96 are kept on average, with a deviation of sqrt(128 * 3 / 16).
    kept = heads * 0.75 * 128
    np.testing.assert_allclose(kept, np.round(kept), atol=1e-3)
    assert kept.std() == pytest.approx(np.sqrt(128 * 3 / 16), rel=0.1)
    assert len(np.unique(kept.std((0, 1)))) == 2, "each head has its own"
    assert not np.array_equal(heads[0], heads[1]), "and so has each row"


def test_dropout_follows_its_seeds():
    one = dropped(0.1)
    np.testing.assert_array_equal(one, dropped(0.1))
    for seeds in ((3, 5), (4, 4)):
        assert (one != dropped(0.1, seeds=seeds)).mean() > 0.5


@pytest.mark.parametrize("length", [128, 1024])
def test_the_gradient_has_the_same_dropout(length):
    """By differences: the gradient of what was dropped would be another. Rows of 1,024
    tokens are cut into blocks of queries.
    """
    (query, key, value), mask = make_inputs(1, length, 2)
    directions, _ = make_inputs(1, length, 2)
    seeds = jnp.array([1, 2], jnp.int32)
    options = {"num_heads": 2, "rate": 0.3, "draw": hashed_bits, "interpret": True}

    @jax.jit
    def loss(query, key, value):
        output = tpu_attention(query, key, value, mask, None, seeds, **options)
        return (jnp.where(mask[..., None], output, 0) ** 2).sum()

    grads = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(query, key, value)
    for number, grad in enumerate(grads):
        step = 1e-2 * directions[number] / jnp.linalg.norm(directions[number])
        arrays = [query, key, value]
        ends = []
        for sign in (1, -1):
            moved = arrays.copy()
            moved[number] = arrays[number] + sign * step
            ends.append(loss(*moved))
        slope = float(ends[0] - ends[1]) / 2
        assert slope == pytest.approx(float((grad * step).sum()), rel=3e-2, abs=1e-3)


def test_each_block_of_queries_has_its_own_dropout():
    output = np.asarray(dropped(0.25, length=1024, rows=1))[0, :, 0].reshape(4, 256)
    for one, other in itertools.combinations(output, 2):
        assert (one != other).mean() > 0.5


@pytest.mark.parametrize("length", range(128, 2049, 128))
def test_blocks_hold_whole_vectors_and_divide_the_row(length):
    plan = BlockPlan((2, length, 768), num_heads=12)
    assert plan.queries % 128 == 0 and length % plan.queries == 0
    assert plan.queries * length <= max(512 * 512, 128 * length)
