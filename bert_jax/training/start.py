"""The training state that a run starts or resumes from."""

import dataclasses

import jax
import numpy as np
from etils import epath
from flax import serialization
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh, Sharding

from bert_jax.checkpoints.manager import Checkpoints
from bert_jax.checkpoints.restore import restore_step
from bert_jax.config import RunConfig
from bert_jax.config.model import Params
from bert_jax.distributed.sharding import tree_shardings
from bert_jax.model.finite import require_finite
from bert_jax.tasks.task import Task
from bert_jax.training.run import Run
from bert_jax.training.step import TrainState


def _place(values: np.ndarray, sharding: Sharding) -> jax.Array:
    """Return an array on the devices; each host has all values."""
    return jax.make_array_from_callback(
        values.shape, sharding, lambda index: values[index]
    )


def replace_params(params: Params, source: Params) -> Params:
    """Return `params` with the values of `source`, sharded as before."""
    leaves = flatten_dict(params)
    for path, values in flatten_dict(source).items():
        if path in leaves:
            leaves[path] = _place(np.asarray(values), leaves[path].sharding)
    return unflatten_dict(leaves)


def place_fixed_params(task: Task, mesh: Mesh) -> Params:
    """Return the fixed parameters of a task on the devices; {} if it has none."""
    fixed = task.fixed_params
    return jax.tree.map(_place, fixed, tree_shardings(mesh, fixed))


def starting_state(run: Run[RunConfig], checkpoints: Checkpoints) -> TrainState:
    """Return the state before the next step.

    If the run has a checkpoint, restore the latest. Else take the state or the
    parameters from its source, or initialize them randomly. Raise ValueError if one of
    them is not finite, RuntimeError if `config.init_from` names a model, but there is
    neither a source nor a checkpoint of the run.
    """
    config, source = run.config, run.source
    is_random = getattr(config, "from_scratch", False) or not config.init_from
    if run.resume is None and source is None and not is_random:
        raise RuntimeError(
            f"init_from={config.init_from} was not loaded, and the run has no "
            "checkpoint of its own; it would start with random parameters."
        )
    if run.resume is not None:
        source = checkpoints.directory / str(run.resume.step)
    if isinstance(source, epath.Path):
        rest = serialization.to_state_dict(run.state_shapes)
        params, rest = restore_step(source, rest.pop("params"), rest)
        require_finite(params, source)
        values = {"params": params, **rest}
        restored: TrainState = serialization.from_state_dict(run.state_shapes, values)
        return restored
    state = run.draw_state()
    if source is not None:
        params = replace_params(state.params, source)
        state = dataclasses.replace(state, params=params)
    return state
