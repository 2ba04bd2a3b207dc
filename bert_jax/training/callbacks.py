"""What a program of one's own does while a run trains."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from etils import epath

from bert_jax.terminal.messages import warn


class Callback:
    """Base class: override the methods that you need.

    They are called on the primary process, between two steps, in the thread that
    trains: the run waits for them. They change nothing in the run. A resumed run calls
    them again for the steps after its checkpoint.
    """

    stop_on_error: ClassVar[bool] = False
    """Whether an exception of a method ends the run. If not, a warning is printed, and
    the run goes on."""

    def on_log(self, step: int, scalars: Mapping[str, float]) -> None:
        """Called every `log_every` steps, with the training line of `metrics.jsonl`."""

    def on_evaluation(self, step: int, scores: Mapping[str, float]) -> None:
        """Called after each evaluation, with the validation line."""

    def on_checkpoint(self, step: int, path: epath.Path) -> None:
        """Called when a checkpoint is complete, some steps after it was begun."""


class Callbacks:
    """The callbacks of a run, in order."""

    def __init__(self, callbacks: Sequence[Callback]):
        """Take the callbacks; raise TypeError if one is no `Callback`."""
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(
                    f"callbacks holds {callback!r:.80}, which is no bert_jax.Callback; "
                    "pass an object of a class that derives from it."
                )
        self._callbacks = callbacks

    def on_log(self, step: int, scalars: Mapping[str, float]) -> None:
        self._call(step, lambda callback: callback.on_log(step, {**scalars}))

    def on_evaluation(self, step: int, scores: Mapping[str, float]) -> None:
        self._call(step, lambda callback: callback.on_evaluation(step, {**scores}))

    def on_checkpoint(self, step: int, path: epath.Path) -> None:
        self._call(step, lambda callback: callback.on_checkpoint(step, path))

    def _call(self, step: int, call: Callable[[Callback], None]) -> None:
        """Call a method of each; raise RuntimeError if a failure of it ends the run."""
        for callback in self._callbacks:
            try:
                call(callback)
            except Exception as error:
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                name = type(callback).__name__
                problem = f"The callback {name} failed at step {step}"
                if callback.stop_on_error:
                    raise RuntimeError(f"{problem}: {reason}.") from error
                warn(f"{problem}, and the run goes on: {reason}.")
