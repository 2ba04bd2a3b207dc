"""The cache directory, whose files can be made again."""

from collections.abc import Mapping
from pathlib import Path


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return the cache directory of bert_jax, which may not exist."""
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "bert_jax"
