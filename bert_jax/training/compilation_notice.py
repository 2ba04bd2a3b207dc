"""Say when a step is compiled: once for each shape of its batches."""

import contextlib
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from bert_jax.tasks.task import DeviceBatch

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
Announce = Callable[[str], contextlib.AbstractContextManager[object]]


def announce_compilation(
    step: Callable[P, ResultT], what: str, announce: Announce
) -> Callable[P, ResultT]:
    """Return `step`, which calls `announce` around its compilations.

    Args:
        step: a jitted function whose last argument is a batch. Its first call with
            batches of a shape compiles it, or reads the program from the cache.
        what: its name in the message, such as "the training step".
        announce: returns a context that tells the user what the run waits for.
    """
    compiled: set[tuple[tuple[int, ...], ...]] = set()

    def call(*args: P.args, **kwargs: P.kwargs) -> ResultT:
        batch = args[-1]
        assert isinstance(batch, dict)
        shapes = tuple(batch[name].shape for name in sorted(batch))
        if shapes in compiled:
            return step(*args, **kwargs)
        compiled.add(shapes)
        with announce(f"compiling {what} for {_describe(batch)}"):
            return step(*args, **kwargs)

    return call


def _describe(batch: DeviceBatch) -> str:
    """Return the size of a batch, such as "32 rows of 128"."""
    shape = max((array.shape for array in batch.values()), key=len)
    inner = " × ".join(map(str, shape[1:]))
    return f"{shape[0]} rows of {inner}" if inner else f"{shape[0]} rows"
