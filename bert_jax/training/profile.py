"""A trace of some steps, for TensorBoard's profile page and XProf."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from etils import epath

from bert_jax.config import RunConfig
from bert_jax.config.training import steps_between
from bert_jax.distributed.collectives import is_primary

Step = TypeVar("Step", bound=Callable[..., Any])
PROFILE = "profile"


class Profile:
    """Traces the steps that `config.profile_steps` names, on process 0 alone.

    Used within `with`: a run that ends among them leaves the trace of those it did.
    """

    def __init__(self, config: RunConfig, workdir: epath.Path, step: int) -> None:
        """`step` is the number of steps done before."""
        self._steps = steps_between(config.profile_steps) if is_primary() else range(0)
        self._directory = workdir / PROFILE
        self._step = step
        self._running = False

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def around(self, train_step: Step) -> Step:
        """`train_step` (state, batch → state, scalars), traced when its turn comes."""
        if not self._steps:
            return train_step

        def traced(state: Any, batch: Any) -> Any:
            self._step += 1
            if self._step not in self._steps:
                return train_step(state, batch)
            self._start(state)
            with jax.profiler.StepTraceAnnotation("train", step_num=self._step):
                after = train_step(state, batch)
            if self._step == self._steps[-1]:
                jax.block_until_ready(after)
                self._stop()
            return after

        return traced  # type: ignore[return-value]

    def _start(self, state: Any) -> None:
        """Begin, once the steps before are done and so not in the trace."""
        if not self._running:
            jax.block_until_ready(state)
            jax.profiler.start_trace(str(self._directory))
            self._running = True

    def _stop(self) -> None:
        if self._running:
            self._running = False
            jax.profiler.stop_trace()
