"""Reading a checkpoint: its arrays, compared leaf by leaf with what is wanted.

A step directory holds `state/` (the parameters), `optimizer/` (the rest of the training
state), `config.json`, `tokenizer/`, and `manifest.json`, written last: Orbax alone
would restore flipped bits, and name a newest step whose saving had failed.
"""

from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from bert_jax.distributed.mesh import path_name
from bert_jax.storage.atomic import absolute


def _shapes(tree: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    return {
        path_name(path): (tuple(leaf.shape), str(leaf.dtype))
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def require_same_shapes(item: epath.Path, wanted: Any) -> None:
    """Refuse a saved tree that is not like `wanted`, leaf by leaf.

    Orbax would cast and drop without a word.

    Raises:
        ValueError: a shape or dtype differs, or a leaf is missing or too many.
    """
    a = _shapes(ocp.PyTreeCheckpointHandler().metadata(absolute(item)).tree)
    b = _shapes(wanted)
    wrong = [
        f"{name} is {a.get(name, 'absent')} and should be {b.get(name, 'absent')}"
        for name in sorted(a.keys() | b.keys())
        if a.get(name) != b.get(name)
    ]
    if wrong:
        raise ValueError(
            f"{item} does not fit this run: {'; '.join(wrong[:2])}; {len(wrong)} in "
            "all differ. Repeat the options that it was made with."
        )


def _restore_item(item: epath.Path, wanted: Any) -> Any:
    require_same_shapes(item, wanted)
    return ocp.StandardCheckpointHandler().restore(
        absolute(item), args=ocp.args.StandardRestore(wanted)
    )


def restore_params(step_directory: epath.Path, wanted: Any) -> Any:
    """The parameters of one checkpoint, laid out over the devices.

    Args:
        wanted: their shapes, dtypes and shardings.

    Raises:
        ValueError: a shape or dtype differs, or a leaf is missing or too many.
    """
    return _restore_item(step_directory / "state", wanted)


def restore_step(step_directory: epath.Path, params: Any, rest: Any) -> tuple[Any, Any]:
    """The parameters and the rest of the training state of one checkpoint.

    Arguments and errors are those of `restore_params`.
    """
    restored = restore_params(step_directory, params)
    return restored, _restore_item(step_directory / "optimizer", rest)


def read_params(step_directory: epath.Path) -> Any:
    """The parameters of a checkpoint as a nested dict of NumPy arrays."""
    handler = ocp.PyTreeCheckpointHandler()
    item = absolute(step_directory) / "state"
    as_numpy = jax.tree.map(
        lambda _: ocp.RestoreArgs(restore_type=np.ndarray), handler.metadata(item).tree
    )
    return handler.restore(item, args=ocp.args.PyTreeRestore(restore_args=as_numpy))
