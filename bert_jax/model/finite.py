"""Find parameters that are not finite."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from bert_jax.config.model import Params


@jax.jit
def _finite(leaves: list[Array]) -> Bool[Array, " L"]:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves])


def nonfinite_names(params: PyTree) -> list[str]:
    """Return the names of the parameters that hold a number that is not finite.

    NumPy arrays are read once and not copied; others stay on their devices.
    """
    named = jax.tree_util.tree_leaves_with_path(params)
    leaves = [leaf for _, leaf in named]
    if any(isinstance(leaf, jax.Array) for leaf in leaves):
        finite = jax.device_get(_finite(leaves))
    else:
        with np.errstate(invalid="ignore"):  # infinity minus infinity
            sums = [np.sum(leaf, dtype=np.float64) for leaf in leaves]
        finite = np.isfinite(sums)
    return [
        jax.tree_util.keystr(path, simple=True, separator="/")
        for (path, _), is_finite in zip(named, finite, strict=True)
        if not is_finite
    ]


def require_finite(params: Params, where: object) -> None:
    """Raise ValueError if a parameter of the model in `where` is not finite."""
    if names := nonfinite_names(params):
        raise ValueError(
            f"{where} has {len(names)} parameters with numbers that are not finite, "
            f"the first of them {names[0]}; its training has diverged. Name an earlier "
            "checkpoint, or train again with a lower learning rate."
        )
