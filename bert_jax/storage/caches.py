"""Where files are kept that can be made again."""

from collections.abc import Mapping
from pathlib import Path


def caches(environment: Mapping[str, str]) -> Path:
    """Our directory among the user's caches; it may not be there."""
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "bert_jax"
