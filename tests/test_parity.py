"""The model and its training beside PyTorch's: see tests/parity/README.md."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

PARITY = Path(__file__).parent / "parity"


def unflatten(npz: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arrays by "/"-joined path -> nested dict; strings are JSON and are parsed."""
    tree: dict[str, Any] = {}
    for path, array in npz.items():
        *parents, leaf = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = json.loads(str(array)) if array.dtype.kind == "U" else array
    return tree


def load_fixture(name: str) -> dict[str, Any]:
    with np.load(PARITY / f"{name}.npz") as npz:
        return unflatten(npz)
