import collections
import gc
import importlib.util
import itertools
import sys
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data import pipeline
from bert_jax.data.batches import DatasetBatches
from bert_jax.data.pipeline import (
    host_slice,
    inverse_permute,
    permute,
    positions_of_rows,
    row_numbers,
    stream,
)
from bert_jax.storage.quiet_tensorflow import quiet_tensorflow

BACKENDS = [
    pytest.param(False, id="plain"),
    pytest.param(
        True,
        id="tensorflow",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"
        ),
    ),
]


def read(step):
    return {
        "tokens": np.arange(12, dtype=np.uint16).reshape(3, 4) + np.uint16(step),
        "label": np.full((3, 1), step % 100, np.int8),
    }


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_permute_is_a_bijection(size, key):
    images = permute(np.arange(size), size, key)
    assert np.array_equal(np.sort(images), np.arange(size))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10**12), st.integers(0, 2**64 - 1))
def test_the_inverse_of_permute(size, key):
    positions = np.unique(np.linspace(0, size - 1, 100, dtype=np.int64))
    images = permute(positions, size, key)
    assert size < 100 or not np.array_equal(images, positions)
    assert np.array_equal(inverse_permute(images, size, key), positions)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 50), st.integers(-(2**63), 2**63 - 1), st.integers(0, 9**9))
def test_the_position_of_a_row_in_an_epoch(size, seed, epoch):
    positions = epoch * size + np.arange(size)
    rows = row_numbers(size, seed, positions)
    np.testing.assert_array_equal(positions_of_rows(size, seed, rows, epoch), positions)


@pytest.mark.parametrize(("batch_size", "seed", "first_step"), [(8, 0, 0), (300, 3, 7)])
def test_the_steps_of_a_row(batch_size, seed, first_step, dataset):
    """Each place of each batch of several epochs, and no other."""
    batches = DatasetBatches(dataset, batch_size, seed, first_step)
    end = first_step + 3 * len(dataset.train) // batch_size + 2
    places = collections.defaultdict(list)
    for step in range(first_step, end):
        for place, row in enumerate(batches.row_numbers(step).tolist()):
            places[row].append((step, place))
    assert len(places) == len(dataset.train)
    for row, expected in list(places.items())[::7]:
        (count,) = batches.num_epochs_of_rows(np.array([row]), end).tolist()
        epochs = range(count)
        assert [batches.place_of_row(row, epoch) for epoch in epochs] == expected
        for step in (0, first_step, first_step + 1, end - 1):
            before = sum(s < step for s, _ in expected)
            assert batches.num_epochs_of_rows(np.array([row]), step) == [before]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 64, 65, 255, 256, 257])
def test_permute_at_the_edges_of_its_domain(size):
    for key in range(20):
        assert set(permute(np.arange(size), size, key).tolist()) == set(range(size))


def test_permute_does_not_depend_on_what_is_asked_together():
    whole = permute(np.arange(1000), 1000, 7)
    chosen = np.array([999, 3, 500, 3])
    assert np.array_equal(permute(chosen, 1000, 7), whole[chosen])


def test_permute_reaches_sizes_beyond_32_bits():
    images = permute(np.arange(1000), 10**12, 3)
    assert len(set(images.tolist())) == 1000
    assert images.min() >= 0 and 9e11 < images.max() < 10**12


def test_every_permutation_of_four_comes_about_equally_often():
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for order in row_numbers(4, 0, np.arange(4 * 1200)).reshape(-1, 4).tolist():
        counts[tuple(order)] += 1
    # 24 orders, 50 expected of each: chi-square with 23 degrees, 0.1 % above 49.7.
    assert sum((n - 50) ** 2 / 50 for n in counts.values()) < 49.7


def test_rows_land_anywhere_whatever_their_neighbours():
    size, epochs, cells = 1000, 200, 10
    images = np.array(
        [permute(np.arange(size), size, epoch) for epoch in range(epochs)]
    )
    first, second = images[:, :-1] * cells // size, images[:, 1:] * cells // size
    counts = np.bincount((first * cells + second).ravel(), minlength=cells**2)
    expected = counts.sum() / cells**2
    # Neighbouring positions: 99 degrees of freedom, 0.1 % above 148.2.
    assert ((counts - expected) ** 2 / expected).sum() < 148.2
    # One position over the epochs: 9 degrees, 0.1 % above 27.9; of 10 positions.
    for position in range(0, size, 100):
        counts = np.bincount(images[:, position] * cells // size, minlength=cells)
        assert ((counts - epochs / cells) ** 2 / (epochs / cells)).sum() < 27.9
    assert abs(np.corrcoef(images[:-1].ravel(), images[1:].ravel())[0, 1]) < 0.01


def test_each_epoch_holds_every_row_once_in_another_order():
    numbers = row_numbers(37, 5, np.arange(3 * 37)).reshape(3, 37)
    assert np.array_equal(np.sort(numbers, axis=1), np.tile(np.arange(37), (3, 1)))
    assert len({tuple(epoch) for epoch in numbers}) == 3
    assert not np.array_equal(numbers.ravel(), row_numbers(37, 6, np.arange(3 * 37)))


def test_batches_that_span_epochs_are_cut_from_one_stream():
    whole = row_numbers(10, 1, np.arange(80))
    batches = [row_numbers(10, 1, np.arange(8 * s, 8 * s + 8)) for s in range(10)]
    assert np.array_equal(np.concatenate(batches), whole)
    assert np.array_equal(row_numbers(1, 1, np.arange(3)), [0, 0, 0])


def test_no_rows_is_an_error():
    with pytest.raises(ValueError, match="at least one row"):
        row_numbers(0, 0, np.arange(4))


def test_host_shares_make_up_the_global_batch():
    positions = np.arange(12)
    for hosts in (1, 2, 3, 4, 6, 12):
        shares = [positions[host_slice(12, host, hosts)] for host in range(hosts)]
        assert np.array_equal(np.concatenate(shares), positions)
    with pytest.raises(ValueError, match="batch_size=12 .* 5 hosts; 15 would be"):
        host_slice(12, 0, 5)


def assert_same(batches, expected):
    assert len(batches) == len(expected)
    for batch, other in zip(batches, expected, strict=True):
        assert list(batch) == list(other)
        for name, array in batch.items():
            assert array.dtype == other[name].dtype
            assert np.array_equal(array, other[name])


@pytest.mark.parametrize("use_tensorflow", BACKENDS)
def test_stream_yields_each_step_in_order(use_tensorflow):
    assert_same(list(stream(read, 0, 20, use_tensorflow)), [read(s) for s in range(20)])


@pytest.mark.parametrize("use_tensorflow", BACKENDS)
def test_resuming_at_a_step_yields_the_tail(use_tensorflow):
    whole = list(stream(read, 0, 9, use_tensorflow))
    assert_same(list(stream(read, 6, 9, use_tensorflow)), whole[6:])
    assert list(stream(read, 9, 9, use_tensorflow)) == []


@pytest.mark.parametrize("use_tensorflow", BACKENDS)
def test_what_read_raises_reaches_the_caller(use_tensorflow):
    class ShardLostError(ValueError):
        pass

    def failing(step):
        if step >= 3:
            raise ShardLostError(f"step {step} is lost")
        return read(step)

    batches = stream(failing, 0, 9, use_tensorflow)
    assert_same([next(batches) for _ in range(3)], [read(s) for s in range(3)])
    with pytest.raises(ShardLostError, match="^step 3 is lost$"):
        next(batches)


@pytest.mark.parametrize("use_tensorflow", BACKENDS)
def test_what_the_first_read_raises_reaches_the_caller(use_tensorflow):
    def failing(step):
        raise KeyError(step)

    with pytest.raises(KeyError, match="5"):
        next(stream(failing, 5, 9, use_tensorflow))


@pytest.mark.parametrize("use_tensorflow", BACKENDS)
def test_closing_frees_the_reader(use_tensorflow):
    class Reader:
        def read(self, step):
            return read(step)

    reader = Reader()
    gone = weakref.ref(reader)
    threads = threading.active_count()
    batches = stream(reader.read, 0, 10**9, use_tensorflow)
    next(batches)
    batches.close()
    del reader, batches
    gc.collect()
    assert gone() is None
    assert threading.active_count() <= threads


@pytest.mark.parametrize("use_tensorflow", BACKENDS)
def test_reading_ahead_is_bounded(use_tensorflow):
    seen = []

    def noting(step):
        seen.append(step)
        return read(step)

    batches = stream(noting, 0, 1000, use_tensorflow, prefetch=2)
    for _ in range(10):
        next(batches)
    batches.close()
    # Two ready, two being read; TensorFlow's map holds as many again as it reads.
    assert max(seen) <= 9 + 2 + 2 * 2


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"
)
def test_tensorflow_is_used_where_it_is_installed_with_static_shapes(monkeypatch):
    spec = pipeline.tensorflow_dataset(read, 0, 5).element_spec
    assert {k: (tuple(s.shape), s.dtype.name) for k, s in spec.items()} == {
        "tokens": ((3, 4), "uint16"),
        "label": ((3, 1), "int8"),
    }
    used = []
    original = pipeline.tensorflow_dataset
    monkeypatch.setattr(
        pipeline,
        "tensorflow_dataset",
        lambda *args: used.append(args) or original(*args),
    )
    next(stream(read, 0, 5))
    assert len(used) == 1
    list(stream(read, 0, 5, use_tensorflow=False))
    assert len(used) == 1


def test_without_tensorflow_the_plain_stream_is_used(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(
        pipeline, "quiet_tensorflow", lambda: pytest.fail("TensorFlow was asked for")
    )
    assert_same(list(stream(read, 0, 3)), [read(s) for s in range(3)])


def test_tensorflow_is_imported_without_keras_which_can_be_imported_later(
    tmp_path, monkeypatch
):
    (tmp_path / "keras.py").touch()
    (tmp_path / "tensorflow.py").write_text(
        "try:\n    import keras\nexcept ImportError:\n    keras = None\n"
        "class config:\n    set_visible_devices = print\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("keras", "tensorflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert quiet_tensorflow.__wrapped__().keras is None
    import keras

    assert keras.__file__ == str(tmp_path / "keras.py")
    for name in ("keras", "tensorflow"):
        del sys.modules[name]
