"""Choose the rows of each step, and prefetch batches.

The rows of a step are a pure function of (dataset, seed, step): position p of the
endless stream over N rows is row π(p mod N), where π is the permutation of epoch p ÷ N.
A resumed run starts at a later step; there is no iterator state to save.
"""

import collections
import concurrent.futures
import importlib.util
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from jaxtyping import Int, Int64, UInt64

from bert_jax.storage.quiet_tensorflow import quiet_tensorflow

Batch = dict[str, np.ndarray]
Read = Callable[[int], Batch]

_ROUNDS = 6
_PARALLEL_READS = 2
_WORD = (1 << 64) - 1


def _mix(value: int) -> int:
    """Return the output of splitmix64 after state `value`, 64 bits."""
    value = (value + 0x9E3779B97F4A7C15) & _WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)


def _mix_array(values: UInt64[np.ndarray, " B"]) -> UInt64[np.ndarray, " B"]:
    """Apply the finalizer of MurmurHash3 to each value."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))


def _feistel(
    values: UInt64[np.ndarray, " B"], half: int, round_keys: list[int], inverse: bool
) -> UInt64[np.ndarray, " B"]:
    """Apply a balanced Feistel network to values of 2 * `half` bits, or undo it.

    The inverse is the same rounds in reverse order, with the halves exchanged.
    """
    shift, mask = np.uint64(half), np.uint64((1 << half) - 1)
    halves = values >> shift, values & mask
    left, right = halves[::-1] if inverse else halves
    for round_key in reversed(round_keys) if inverse else round_keys:
        left, right = right, left ^ (_mix_array(right ^ np.uint64(round_key)) & mask)
    left, right = (right, left) if inverse else (left, right)
    return (left << shift) | right


def permute(
    positions: Int[np.ndarray, " B"], size: int, key: int, inverse: bool = False
) -> Int64[np.ndarray, " B"]:
    """Apply the permutation of [0, size) that `key` determines to each position.

    A balanced Feistel network permutes [0, next power of four). It is applied again to
    values outside [0, size) until they are inside (cycle walking), which is a bijection
    and needs no memory for any size.
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    round_keys = [_mix(_mix(key) + number) for number in range(_ROUNDS)]
    values = _feistel(positions.astype(np.uint64), half, round_keys, inverse)
    while len(outside := np.flatnonzero(values >= np.uint64(size))):
        values[outside] = _feistel(values[outside], half, round_keys, inverse)
    return values.astype(np.int64)


def inverse_permute(
    images: Int[np.ndarray, " B"], size: int, key: int
) -> Int64[np.ndarray, " B"]:
    """Return the positions that `permute` maps to these images."""
    return permute(images, size, key, inverse=True)


def row_numbers(
    size: int, seed: int, positions: Int[np.ndarray, " B"]
) -> Int64[np.ndarray, " B"]:
    """Return the row at each position of the endless stream over `size` rows.

    Raise ValueError if there are none.
    """
    if size < 1:
        raise ValueError(f"size={size}: a stream needs at least one row.")
    epochs, places = np.divmod(positions, size)
    numbers = np.empty(len(positions), np.int64)
    for epoch in np.unique(epochs):
        chosen = epochs == epoch
        numbers[chosen] = permute(places[chosen], size, _mix(seed) ^ int(epoch))
    return numbers


def positions_of_rows(
    size: int, seed: int, rows: Int[np.ndarray, " B"], epoch: int
) -> Int64[np.ndarray, " B"]:
    """Return where the endless stream over `size` rows holds each row in an epoch.

    The inverse of `row_numbers`: each row is at one position of each epoch.
    """
    return epoch * size + inverse_permute(rows, size, _mix(seed) ^ epoch)


def host_slice(batch_size: int, host_index: int, host_count: int) -> slice:
    """Return the contiguous slice of a global batch that one host reads.

    Raise ValueError if the batch size is not a multiple of the number of hosts.
    """
    if batch_size % host_count:
        raise ValueError(
            f"batch_size={batch_size} is not a multiple of the {host_count} hosts; "
            f"{-(-batch_size // host_count) * host_count} would be."
        )
    size = batch_size // host_count
    return slice(host_index * size, (host_index + 1) * size)


def stream(
    read: Read,
    first_step: int,
    last_step: int,
    use_tensorflow: bool | None = None,
    prefetch: int = 2,
) -> Generator[Batch, None, None]:
    """Yield the batches `read(step)` of steps first_step … last_step - 1, prefetched.

    Uses tf.data if TensorFlow is installed, otherwise a plain iterator with the same
    batches; `use_tensorflow` overrides this. `read` runs in other threads, and its
    exceptions are raised here. All batches must have the shapes and dtypes of the
    first. Arrays may be read-only. Closing the iterator frees threads and buffers.
    """
    if use_tensorflow is None:
        use_tensorflow = importlib.util.find_spec("tensorflow") is not None
    use_tensorflow &= first_step < last_step  # the shapes come from the first batch
    make_stream = _tensorflow_stream if use_tensorflow else _plain_stream
    return make_stream(read, first_step, last_step, prefetch)


def _plain_stream(
    read: Read, first_step: int, last_step: int, prefetch: int
) -> Generator[Batch, None, None]:
    ahead: collections.deque[concurrent.futures.Future[Batch]] = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_READS) as threads:
        for step in range(first_step, last_step):
            ahead.append(threads.submit(read, step))
            if len(ahead) > prefetch:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _tensorflow_stream(
    read: Read, first_step: int, last_step: int, prefetch: int
) -> Generator[Batch, None, None]:
    # TensorFlow keeps the functions it is given until the process ends. It is given
    # this list, emptied at the end, so that it does not keep the rows of `read` alive.
    reads = [read]
    failures: dict[int, Exception] = {}
    blank = {name: np.zeros_like(array) for name, array in read(first_step).items()}

    def read_or_record_failure(step: int) -> Batch:
        # TensorFlow would wrap the exception in one of its own, and log it.
        try:
            return reads[0](step)
        except Exception as error:
            failures[step] = error
            return blank

    dataset = tensorflow_dataset(read_or_record_failure, first_step, last_step)
    batches = dataset.prefetch(prefetch).as_numpy_iterator()
    try:
        for step, batch in zip(range(first_step, last_step), batches, strict=True):
            if step in failures:
                raise failures[step]
            yield batch
    finally:
        del batches  # stops the prefetching threads, and waits for them
        reads.clear()


def tensorflow_dataset(read: Read, first_step: int, last_step: int) -> Any:
    """Return a tf.data.Dataset of `read(step)` for each step, with static shapes.

    To get shapes and dtypes, `read(first_step)` is called once more at the start.
    """
    tf = quiet_tensorflow()
    first_batch = read(first_step)
    shapes = {name: array.shape for name, array in first_batch.items()}
    dtypes = [array.dtype for array in first_batch.values()]

    def read_arrays(step: np.int64) -> list[np.ndarray]:
        batch = read(int(step))
        return [batch[name] for name in shapes]

    def read_tensors(step: Any) -> dict[str, Any]:
        tensors = tf.numpy_function(read_arrays, [step], dtypes)
        return {
            name: tf.ensure_shape(tensor, shape)
            for (name, shape), tensor in zip(shapes.items(), tensors, strict=True)
        }

    options = tf.data.Options()
    options.autotune.enabled = False  # prefetch exactly as many batches as given here
    unconverted = tf.autograph.experimental.do_not_convert(read_tensors)
    return (
        tf.data.Dataset.range(first_step, last_step)
        .map(unconverted, num_parallel_calls=_PARALLEL_READS, deterministic=True)
        .with_options(options)
    )
