"""Restore the arrays of a checkpoint, after comparing shapes and dtypes.

A step directory holds `state/` (the parameters), `optimizer/` (the rest of the training
state), `config.json`, `tokenizer/` and, written last, `manifest.json` with checksums:
Orbax alone would restore flipped bits, and take a failed save for the latest step.
"""

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jaxtyping import Array, PyTree, UInt32

from bert_jax.config.model import Params
from bert_jax.distributed.sharding import path_name
from bert_jax.storage.atomic import absolute
from bert_jax.storage.manifest import read_manifest

OPTIMIZER = "optimizer"
"""The directory of a checkpoint that holds the rest of the training state."""


def _shapes_and_dtypes(tree: PyTree) -> dict[str, tuple[tuple[int, ...], str]]:
    return {
        path_name(path): (tuple(leaf.shape), str(leaf.dtype))
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def require_same_shapes(item: epath.Path, wanted: PyTree) -> None:
    """Raise ValueError unless a saved tree has the shapes and dtypes of `wanted`.

    Orbax would cast and drop leaves silently.
    """
    metadata = ocp.PyTreeCheckpointHandler().metadata(absolute(item))
    saved, expected = _shapes_and_dtypes(metadata.tree), _shapes_and_dtypes(wanted)
    wrong = [
        f"{name} is {saved.get(name, 'absent')} and should be "
        f"{expected.get(name, 'absent')}"
        for name in sorted(saved.keys() | expected.keys())
        if saved.get(name) != expected.get(name)
    ]
    if wrong:
        raise ValueError(
            f"{item} does not fit this run: {'; '.join(wrong[:2])}; {len(wrong)} in "
            "all differ. Repeat the options that it was made with."
        )


def restore_step(
    step_directory: epath.Path, params: Params, rest: PyTree
) -> tuple[Params, PyTree]:
    """Restore the parameters and the rest of the training state of a checkpoint.

    `params` and `rest` are shapes, dtypes and shardings. Raise ValueError if a shape or
    dtype differs, or a leaf is missing or unexpected.
    """
    restored = []
    for name, wanted in (("state", params), (OPTIMIZER, rest)):
        require_same_shapes(step_directory / name, wanted)
        item, args = absolute(step_directory / name), ocp.args.StandardRestore(wanted)
        restored.append(ocp.StandardCheckpointHandler().restore(item, args=args))
    return restored[0], restored[1]


def read_params(step_directory: epath.Path) -> Params:
    """Read the parameters of a checkpoint as a nested dict of float32 NumPy arrays."""
    handler = ocp.PyTreeCheckpointHandler()
    item = absolute(step_directory) / "state"
    # Parameters that a user had cast were once saved as they were.
    float32 = ocp.RestoreArgs(restore_type=np.ndarray, dtype=np.dtype(np.float32))
    as_numpy = jax.tree.map(lambda _: float32, handler.metadata(item).tree)
    return handler.restore(item, args=ocp.args.PyTreeRestore(restore_args=as_numpy))


def read_base_key(step_directory: epath.Path) -> UInt32[Array, "2"]:
    """Read the base key of a run from one of its checkpoints, and nothing else.

    Raise ValueError if the checkpoint is not of a run, such as an imported one.
    """
    manifest = read_manifest(step_directory)
    if "base_key" in manifest:  # written when the optimizer's state was removed
        return jnp.asarray(manifest["base_key"], jnp.uint32)
    item = absolute(step_directory) / OPTIMIZER
    if not item.exists():
        raise ValueError(
            f"{step_directory} has no optimizer state; name the workdir of a run."
        )
    wanted = {"key": ocp.RestoreArgs(restore_type=np.ndarray)}
    restored = ocp.PyTreeCheckpointHandler().restore(
        item,
        args=ocp.args.PyTreeRestore(
            item={"key": np.zeros(2, np.uint32)},
            restore_args=wanted,
            partial_restore=True,
        ),
    )
    return jnp.asarray(restored["key"])
