"""Trace some steps for TensorBoard's profile page and XProf."""

import contextlib

import jax
from etils import epath
from jaxtyping import PyTree

from bert_jax.config import RunConfig
from bert_jax.config.training import parse_step_range
from bert_jax.distributed.collectives import is_primary
from bert_jax.terminal.messages import warn
from bert_jax.training.step import TrainStep

PROFILE = "profile"


class Profile(contextlib.AbstractContextManager["Profile", None]):
    """Traces the steps of `config.profile_steps`, on the primary process only.

    Use it in `with`: if the run ends during those steps, the trace has those before.
    """

    def __init__(self, config: RunConfig, workdir: epath.Path, step: int) -> None:
        """Set up the trace; `step` is the number of steps already done."""
        steps = parse_step_range(config.profile_steps)
        self._steps = steps if is_primary() else range(0)
        self._directory = workdir / PROFILE
        self._step = step
        self._running = False
        if self._steps and self._steps[-1] <= step and not self._directory.exists():
            warn(
                f"profile_steps={config.profile_steps} traces nothing: the run is at "
                f"step {step} already; name later steps."
            )

    def __exit__(self, *_: object) -> None:
        self._stop()

    def wrap(self, train_step: TrainStep) -> TrainStep:
        """Wrap `train_step` to trace the chosen steps.

        A no-op if there are none.
        """
        if not self._steps:
            return train_step

        def traced(state: PyTree, batch: PyTree) -> tuple[PyTree, PyTree, PyTree]:
            self._step += 1
            if self._step not in self._steps:
                return train_step(state, batch)
            if not self._running:
                jax.block_until_ready(state)  # exclude the steps before
                jax.profiler.start_trace(str(self._directory))
                self._running = True
            with jax.profiler.StepTraceAnnotation("train", step_num=self._step):
                result = train_step(state, batch)
            if self._step == self._steps[-1]:
                jax.block_until_ready(result)
                self._stop()
            return result

        return traced

    def _stop(self) -> None:
        if self._running:
            self._running = False
            jax.profiler.stop_trace()
