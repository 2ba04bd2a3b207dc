"""The modules of the package whose functions name the shapes of arrays."""

import importlib.util
from pathlib import Path


def modules_with_arrays() -> list[str]:
    """Return their names; the package is not imported."""
    spec = importlib.util.find_spec("bert_jax")
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parent
    files = (path for path in root.rglob("*.py") if "jaxtyping" in path.read_text())
    return [
        ".".join(path.relative_to(root.parent).with_suffix("").parts) for path in files
    ]
