"""The optimizer's state in a checkpoint: whether it is there, and how it is removed."""

from etils import epath

from bert_jax.checkpoints.restore import OPTIMIZER, read_base_key
from bert_jax.checkpoints.steps import read_step_manifest
from bert_jax.storage.files import JsonObject
from bert_jax.storage.manifest import DamagedError, write_manifest


def has_optimizer_state(manifest: JsonObject) -> bool:
    """Whether the checkpoint of this manifest has the optimizer's state."""
    return any(_is_of_optimizer(entry) for entry in manifest["files"])


def _is_of_optimizer(entry: JsonObject) -> bool:
    return str(entry["path"]).startswith(f"{OPTIMIZER}/")


def drop_optimizer_state(checkpoint: epath.Path) -> int:
    """Remove the optimizer's state from a complete checkpoint; return its bytes.

    The manifest is replaced first: if interrupted, the checkpoint is verified, and the
    next call removes what is left. It then holds the base key of the run.
    """
    try:
        manifest = read_step_manifest(checkpoint)
    except DamagedError:
        return 0  # it stays as it is, for a repair
    removed = [entry for entry in manifest["files"] if _is_of_optimizer(entry)]
    if removed:
        manifest["base_key"] = read_base_key(checkpoint).tolist()
        files = [entry for entry in manifest["files"] if entry not in removed]
        write_manifest(manifest | {"files": files}, checkpoint)
    (checkpoint / OPTIMIZER).rmtree(missing_ok=True)
    return sum(int(entry["size"]) for entry in removed)
