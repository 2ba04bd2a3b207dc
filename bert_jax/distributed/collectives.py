"""What the processes of a run tell each other; with one process, nothing is said.

Every function here but `is_primary` is a collective: all processes call it, in the same
order, from their main thread.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

T = TypeVar("T")

_MESSAGE_BYTES = 512
_PIECE_BYTES = 1024
# The first byte of a message: what kind of error it is.
_NO_ERROR, _USERS, _OTHER = range(3)


def is_primary() -> bool:
    """Whether this process is the one that writes files and speaks."""
    return jax.process_index() == 0


@contextlib.contextmanager
def raise_on_all_processes() -> Iterator[None]:
    """An error within, on any process, is an error on all; and all leave at once.

    So that none goes on into a collective, there to wait for one that failed.

    Raises:
        ValueError: a user's mistake was found on another process.
        RuntimeError: another process failed.
    """
    try:
        yield
    except Exception as error:
        kind = _USERS if isinstance(error, (ValueError, OSError)) else _OTHER
        _tell(kind, " ".join(str(error).split()))
        raise
    for process, (kind, message) in enumerate(_tell(_NO_ERROR, "")):
        if kind != _NO_ERROR:
            failure = ValueError if kind == _USERS else RuntimeError
            raise failure(f"Process {process} of {jax.process_count()}: {message}")


def _tell(kind: int, message: str) -> list[tuple[int, str]]:
    """What each process told, in their order."""
    if jax.process_count() == 1:
        return [(kind, message)]
    content = bytes([kind]) + message.encode()[: _MESSAGE_BYTES - 1]
    told = np.zeros(_MESSAGE_BYTES, np.uint8)
    told[: len(content)] = np.frombuffer(content, np.uint8)
    return [
        (int(each[0]), bytes(each[1:]).rstrip(b"\0").decode(errors="ignore"))
        for each in multihost_utils.process_allgather(told)
    ]


def first_error(problem: str) -> str:
    """A problem of any process, on all of them; "": none has one.

    Args:
        problem: of this process, in one line; "": none.
    """
    return next((message for _, message in _tell(_NO_ERROR, problem) if message), "")


def broadcast_from_primary(value: T) -> T:
    """The first process's `value`, which JSON can hold, on every process."""
    if jax.process_count() == 1:
        return value
    content = json.dumps(value).encode() if is_primary() else b""
    length = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))
    padded = np.zeros(-(-length // _PIECE_BYTES) * _PIECE_BYTES, np.uint8)
    padded[: len(content)] = np.frombuffer(content, np.uint8)
    pieces = multihost_utils.broadcast_one_to_all(padded)
    found: T = json.loads(bytes(pieces)[:length])
    return found


def run_on_primary_first(make: Callable[[], T]) -> T:
    """What `make` gives, called on the first process before it is on the others.

    What it leaves on a disk that they share, the others find there.
    """
    with raise_on_all_processes():
        if is_primary():
            made = make()
    with raise_on_all_processes():
        if not is_primary():
            made = make()
    return made


class Poll:
    """The largest of the numbers that the processes give, asked anew at each step.

    Several processes hear the answer one call late. It is computed behind the step that
    was just handed to the devices, which have that one to work on while the answer to
    the call before is fetched.
    """

    def __init__(self) -> None:
        self._asked: jax.Array | None = None
        mesh = Mesh(np.array(jax.devices()), ("all",))
        self._spread = NamedSharding(mesh, P("all"))
        self._largest = jax.jit(jnp.max, out_shardings=NamedSharding(mesh, P()))

    def largest(self, number: int) -> int:
        """The largest number of all processes; 0 from the first call of several."""
        if jax.process_count() == 1:
            return number
        before = self._asked
        own = np.full(jax.local_device_count(), number, np.int32)
        self._asked = self._largest(
            jax.make_array_from_process_local_data(self._spread, own)
        )
        return 0 if before is None else int(before)
