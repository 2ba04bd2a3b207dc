"""The state that a run starts, or goes on, from."""

import dataclasses
import functools
from typing import Any, TypeAlias

import jax
import numpy as np
from etils import epath
from flax import serialization
from jax.sharding import Mesh

from bert_jax.checkpoints.manager import Checkpoints
from bert_jax.checkpoints.restore import restore_step
from bert_jax.config import RunConfig
from bert_jax.distributed.mesh import path_name, tree_shardings
from bert_jax.tasks.task import Task
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.resume import Resume
from bert_jax.training.state import TrainState, initial_state

InitSource: TypeAlias = epath.Path | dict[str, Any]
"""A run's checkpoint, to go on from with its optimizer and step; or parameters in
memory, a nested dict that may lack some."""


def replace_params(params: Any, given: dict[str, Any]) -> Any:
    """`params`, laid out over the devices as they are, with the values in `given`."""
    found = {
        path_name(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(given)
    }

    def choose(path: tuple[Any, ...], drawn: jax.Array) -> jax.Array:
        values = found.get(path_name(path))
        if values is None:
            return drawn
        return jax.make_array_from_callback(
            drawn.shape, drawn.sharding, lambda part: values[part]
        )

    return jax.tree_util.tree_map_with_path(choose, params)


def _require_origin(
    config: RunConfig, source: InitSource | None, resume: Resume | None
) -> None:
    drawn = getattr(config, "from_scratch", False) or not config.init_from
    if resume is None and source is None and not drawn:
        raise RuntimeError(
            f"init_from={config.init_from} was not loaded, and the run has no "
            "checkpoint of its own; it would begin with random parameters."
        )


def starting_state(
    task: Task,
    optimizer: Optimizer,
    config: RunConfig,
    mesh: Mesh,
    checkpoints: Checkpoints,
    source: InitSource | None,
    resume: Resume | None,
) -> tuple[TrainState, TrainState]:
    """The state, and its shardings.

    That is the run's own newest checkpoint. A run without any takes the parameters, or
    all of the state, from `source`, or draws them.

    Raises:
        RuntimeError: the run is to begin from a model, and neither that nor a
            checkpoint of its own is there.
    """
    _require_origin(config, source, resume)
    new_state = functools.partial(initial_state, task.init_params, optimizer)
    seed = np.uint32(config.seed)  # an argument: all seeds share a compiled program
    shapes = jax.eval_shape(new_state, seed)
    shardings = tree_shardings(mesh, shapes)
    wanted = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding
        ),
        shapes,
        shardings,
    )
    wanted_rest = serialization.to_state_dict(wanted)
    wanted_params = wanted_rest.pop("params")
    if resume is not None:
        params, rest = checkpoints.restore(resume.step, wanted_params, wanted_rest)
    elif isinstance(source, epath.Path):
        params, rest = restore_step(source, wanted_params, wanted_rest)
    else:
        state = jax.jit(new_state, out_shardings=shardings)(seed)
        if source is not None:
            params = replace_params(state.params, source)
            state = dataclasses.replace(state, params=params)
        return state, shardings
    state = serialization.from_state_dict(wanted, {"params": params, **rest})
    return state, shardings
