"""A training run: what trains, on which devices, from where; and its compiled steps."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

import jax
import numpy as np
from etils import epath
from jax.sharding import Mesh
from jaxtyping import Array

from bert_jax.config import RunConfig
from bert_jax.config.model import Params
from bert_jax.distributed.sharding import tree_shardings
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.task import Task
from bert_jax.tokenization import Tokenizer
from bert_jax.training.callbacks import Callback
from bert_jax.training.gradients import Collectives
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.resume import Resume
from bert_jax.training.step import (
    EvalStep,
    TrainState,
    TrainStep,
    initial_state,
    make_eval_step,
    make_train_step,
    with_shardings,
)

InitSource: TypeAlias = epath.Path | Params
"""Where a new run takes its initial values from.

Either a checkpoint of another run, whose optimizer state and step are taken too; or
parameters in memory, a nested dict. Parameters that it lacks are initialized randomly.
"""


ConfigT_co = TypeVar("ConfigT_co", bound=RunConfig, covariant=True)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Run(Generic[ConfigT_co]):
    """A run before its first step, resolved; what a dry run compiles is what trains.

    A workdir is needed to train, and not to compile or to measure steps.
    """

    task: Task
    config: ConfigT_co
    """Completed by what data and model define."""
    mesh: Mesh
    workdir: epath.Path = dataclasses.field(default_factory=epath.Path)
    tokenizer: Tokenizer | None = None
    """Saved with each checkpoint."""
    source: InitSource | None = None
    """None: random parameters, or the parameters of `resume`."""
    resume: Resume | None = None
    """The run's latest verified checkpoint; None: it is new."""
    check_lock: Callable[[], None] = lambda: None
    """Raises RuntimeError if another run took the workdir over."""
    changed: Sequence[JsonObject] = ()
    """The fields in which `config` differs from the configuration of `resume`."""
    callbacks: Sequence[Callback] = ()

    @functools.cached_property
    def optimizer(self) -> Optimizer:
        """The transformation of gradients that `config` names."""
        return Optimizer.of(self.config)

    @functools.cached_property
    def random_state(self) -> Callable[[np.uint32 | Array], TrainState]:
        """The state before the first step, with random parameters, by the seed.

        It is one object, so that JAX traces it once.
        """
        init_params, optimizer = self.task.init_params, self.optimizer
        return lambda seed: initial_state(init_params, optimizer, seed)

    @functools.cached_property
    def state_shapes(self) -> TrainState:
        """Shape, dtype and sharding of every array of the state."""
        # The seed is an array, so that all seeds share a compiled program.
        shapes = jax.eval_shape(self.random_state, np.uint32(self.config.seed))
        state: TrainState = with_shardings(shapes, tree_shardings(self.mesh, shapes))
        return state

    @functools.cached_property
    def shardings(self) -> TrainState:
        """The sharding of every array of the state."""
        leaves: TrainState = jax.tree.map(lambda leaf: leaf.sharding, self.state_shapes)
        return leaves

    def draw_state(self) -> TrainState:
        """Return the state before the first step on the devices, drawn by the seed."""
        draw = jax.jit(self.random_state, out_shardings=self.shardings)
        return draw(np.uint32(self.config.seed))

    def train_step(self) -> TrainStep:
        """Return the jitted training step of this run."""
        return make_train_step(
            self.task,
            self.optimizer,
            self.config.microbatches,
            self.mesh,
            self.shardings,
            Collectives.of(self.config),
        )

    def eval_step(self) -> EvalStep:
        """Return the jitted evaluation step of this run."""
        return make_eval_step(self.task, self.mesh, self.shardings)
