"""Dropout from the four 16-bit numbers of a hash."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32

from bert_jax.model.layers import Dropout, random_uint16


def drop(values, rate=0.1, seed=0, deterministic=False):
    rngs = {"dropout": jax.random.key(seed)}
    return Dropout(rate).apply({}, values, deterministic, rngs=rngs)


def test_the_numbers_are_even_and_of_no_pattern():
    numbers = np.asarray(random_uint16(jax.random.key(0), (200, 1000)))
    assert numbers.dtype == np.uint32 and numbers.max() < 2**16
    shares = np.bincount(numbers.ravel() >> 12) / numbers.size
    np.testing.assert_allclose(shares, 1 / 16, atol=0.002)  # four deviations: 0.0022
    # Both halves of a word, and both words of a hash, are numbers of their own.
    flat = (numbers - numbers.mean()) / numbers.std()
    quarters = flat.reshape(4, -1)
    halves = quarters @ quarters.T / quarters.shape[1]
    assert np.abs(halves - np.eye(4)).max() < 0.02
    assert len(np.unique(numbers.reshape(-1, 4), axis=0)) > 49_990


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 7), (2, 3, 4)])
def test_any_shape_has_its_numbers(shape):
    numbers = random_uint16(jax.random.key(1), shape)
    assert numbers.shape == shape
    other = random_uint16(jax.random.key(2), shape)
    assert (numbers != other).any()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9999999])
def test_the_share_is_dropped_and_the_mean_is_kept(rate):
    values = jnp.ones((400, 500))
    dropped = np.asarray(drop(values, rate))
    expected = min(rate, 65535 / 65536)
    deviation = (expected * (1 - expected) / values.size) ** 0.5
    assert abs((dropped == 0).mean() - expected) < 4 * deviation + 1e-5
    kept = dropped[dropped != 0]
    if rate < 0.9:
        np.testing.assert_allclose(kept, 1 / (1 - rate), rtol=2e-5)


def test_the_mask_follows_the_key_and_the_module():
    values = jnp.ones((8, 64))
    np.testing.assert_array_equal(drop(values), drop(values))
    assert (drop(values) != drop(values, seed=1)).any()


def test_nothing_is_dropped_where_nothing_should_be():
    values = jnp.ones((8, 64), jnp.bfloat16)
    assert drop(values).dtype == jnp.bfloat16
    assert (drop(values, deterministic=True) == 1).all()
    assert (drop(values, rate=0.0) == 1).all()


@pytest.mark.parametrize(
    ("platform", "drawn"), [("tpu", True), ("cuda", False), ("cpu", False)]
)
def test_tpus_alone_draw_by_their_own_generator(platform, drawn):
    draw = jax.jit(lambda key: random_uint16(key, (3, 4)))
    program = jax.export.export(draw, platforms=[platform])(jax.random.key(0))
    assert ("rng_bit_generator" in program.mlir_module()) == drawn


def test_the_numbers_are_those_of_threefry():
    """So that a run goes on as it began, whatever draws elsewhere."""
    data, counters = (jnp.arange(n, dtype=jnp.uint32) for n in (2, 6))
    words = np.asarray(threefry_2x32(data, counters))
    key = jax.random.wrap_key_data(data)
    expected = np.concatenate([words & 0xFFFF, words >> 16]).reshape(4, 3)
    np.testing.assert_array_equal(random_uint16(key, (4, 3)), expected)


def test_swapped_numbers_are_those_of_the_swapped_values():
    values, key = jnp.ones((3, 8, 5)), {"dropout": jax.random.key(0)}
    swapped = Dropout(0.5, swapped=True).apply({}, values, False, rngs=key)
    plain = Dropout(0.5).apply({}, values.swapaxes(1, 2), False, rngs=key)
    np.testing.assert_array_equal(swapped, plain.swapaxes(1, 2))
