"""Rename the tensors of a file of transformers to the names that it uses today."""

import re
from collections.abc import Sequence

import numpy as np
from etils import epath

from bert_jax.formats.imported import Tensor

TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Tensors that a file may hold as copies, and the original of each."""
_WRAPPERS = re.compile(r"^(module\.|_orig_mod\.)+")
"""Prefixes that DataParallel and torch.compile add to the names of the inner model."""


def find_wrapper_prefix(path: epath.Path, names: Sequence[str]) -> str:
    """Return the prefix of wrappers that every name has, or an empty string.

    Raises:
        ValueError: only some of the names have it.
    """
    example_of: dict[str, str] = {}  # the first name with each prefix
    for name in names:
        example_of.setdefault(name.removesuffix(_WRAPPERS.sub("", name)), name)
    prefix = max(example_of, key=len, default="")
    if len(example_of) > 1:
        wrapped, other = example_of.pop(prefix), example_of.popitem()[1]
        raise ValueError(
            f"{path} holds {wrapped} and {other}: {prefix!r} comes from DataParallel "
            "or torch.compile around a model, and only some of the names have it; save "
            "the state of the model inside."
        )
    return prefix


def canonical_names(
    path: epath.Path, tensors: Sequence[Tensor], prefix: str
) -> dict[str, Tensor]:
    """Return the tensors by the names that transformers' classes with a head use.

    Args:
        prefix: what to remove from the start of each name.

    Raises:
        ValueError: two tensors have the same name.
    """
    names = [tensor.name.removeprefix(prefix) for tensor in tensors]
    # Files of BertModel have no `bert.`.
    is_encoder = not any(name.startswith("bert.") for name in names)
    renamed: dict[str, Tensor] = {}
    for tensor, name in zip(tensors, names, strict=True):
        if is_encoder and name.startswith(("embeddings.", "encoder.", "pooler.")):
            name = f"bert.{name}"
        if name.endswith(".LayerNorm.gamma"):
            name = name.removesuffix("gamma") + "weight"
        if name.endswith(".LayerNorm.beta"):
            name = name.removesuffix("beta") + "bias"
        if name in renamed:
            raise ValueError(
                f"{path}: {renamed[name].name} and {tensor.name} are two tensors for "
                "one parameter; keep one."
            )
        renamed[name] = tensor
    return renamed


def pop_tied_copies(
    path: epath.Path, tensors: dict[str, Tensor]
) -> list[tuple[str, Tensor]]:
    """Remove the copies of tied tensors; return the name of the original and the copy.

    If only the copy is stored, it takes the place of the original.

    Raises:
        ValueError: a copy differs from its original.
    """
    copies = []
    for name, original in TIED.items():
        if name not in tensors:
            continue
        copy = tensors.pop(name)
        if original not in tensors:
            tensors[original] = copy
            continue
        other = tensors[original]
        same = (copy.dtype, copy.shape) == (other.dtype, other.shape)
        if not same or not np.array_equal(copy.read(), other.read(), equal_nan=True):
            raise ValueError(
                f"{path}: {copy.name} differs from {other.name}; bert_jax has one "
                "array for both, so such a model cannot be imported."
            )
        copies.append((original, copy))
    return copies
