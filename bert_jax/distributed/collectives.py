"""Collectives between the processes (hosts) of a run.

All functions except `is_primary` are collectives: every process must call them, in the
same order, from its main thread. With one process they are no-ops.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.terminal.messages import explain, one_line

T = TypeVar("T")

_MESSAGE_BYTES = 2048
_PIECE_BYTES = 1024
# The first byte of a message: the kind of error.
_NO_ERROR, _USER_ERROR, _OTHER_ERROR = range(3)


def is_primary() -> bool:
    """Whether this is the primary process, the one that writes files and prints."""
    return jax.process_index() == 0


@contextlib.contextmanager
def raise_on_all_processes() -> Iterator[None]:
    """A barrier that raises on all processes if the body raises on any of them.

    Without it, the other processes would wait forever in their next collective. Raise
    ValueError if another process raised an error that `explain` knows as a user's,
    RuntimeError if another process raised any other error.
    """
    try:
        yield
    except Exception as error:
        message, code = explain(error) or (str(error), 1)
        _all_gather_message(_USER_ERROR if code == 2 else _OTHER_ERROR, message)
        raise
    for process, (kind, message) in enumerate(_all_gather_message(_NO_ERROR, "")):
        if kind != _NO_ERROR:
            error_class = ValueError if kind == _USER_ERROR else RuntimeError
            raise error_class(f"Process {process} of {jax.process_count()}: {message}")


def _all_gather_message(kind: int, message: str) -> list[tuple[int, str]]:
    """The kind and message of each process, in process order."""
    if jax.process_count() == 1:
        return [(kind, message)]
    # A file name in it may have bytes that are not UTF-8.
    content = bytes([kind]) + one_line(message).encode()[: _MESSAGE_BYTES - 1]
    padded = np.zeros(_MESSAGE_BYTES, np.uint8)
    padded[: len(content)] = np.frombuffer(content, np.uint8)
    return [
        (int(row[0]), bytes(row[1:]).rstrip(b"\0").decode(errors="ignore"))
        for row in multihost_utils.process_allgather(padded)
    ]


def first_error(problem: str) -> str:
    """The first non-empty `problem` (one line) of all processes; "" if none has any."""
    messages = _all_gather_message(_NO_ERROR, problem)
    return next((message for _, message in messages if message), "")


def broadcast_from_primary(value: T) -> T:
    """Broadcast `value`, which JSON can hold, from the primary process to all."""
    if jax.process_count() == 1:
        return value
    content = json.dumps(value).encode() if is_primary() else b""
    length = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))
    # Pad to whole pieces, so that few shapes are compiled.
    padded = np.zeros(-(-length // _PIECE_BYTES) * _PIECE_BYTES, np.uint8)
    padded[: len(content)] = np.frombuffer(content, np.uint8)
    received = multihost_utils.broadcast_one_to_all(padded)
    decoded: T = json.loads(bytes(received)[:length])
    return decoded


def run_on_primary_first(function: Callable[[], T]) -> T:
    """Call `function` on the primary process, then on the others; return its result.

    Files that the primary process leaves on a shared disk are there for the others.
    """
    for turn_of_primary in (True, False):
        with raise_on_all_processes():
            if is_primary() == turn_of_primary:
                result = function()
    return result


def run_on_primary(function: Callable[[], T]) -> T:
    """Call `function` on the primary process alone; return its result on all.

    The others wait. The result must be one that JSON can hold.
    """
    with raise_on_all_processes():
        result = function() if is_primary() else None
    return cast(T, broadcast_from_primary(result))


class AsyncMax:
    """An all-reduce (maximum) of one integer of each process, called at every step.

    With several processes, each call returns the result of the call before. The
    all_reduce is queued behind the step that was just dispatched, and the host does not
    wait for it while that step runs.
    """

    def __init__(self) -> None:
        self._pending: jax.Array | None = None
        mesh = Mesh(np.array(jax.devices()), ("all",))
        self._sharding = NamedSharding(mesh, P("all"))
        self._max = jax.jit(jnp.max, out_shardings=NamedSharding(mesh, P()))

    def all_reduce(self, value: int) -> int:
        """The maximum over processes; with several, of the previous values, or 0."""
        if jax.process_count() == 1:
            return value
        previous = self._pending
        own = np.full(jax.local_device_count(), value, np.int32)
        self._pending = self._max(
            jax.make_array_from_process_local_data(self._sharding, own)
        )
        return 0 if previous is None else int(previous)
