"""The cache directory, whose files can be made again."""

import os
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return the cache directory of bert_jax, which may not exist.

    A user without a home, as in some containers, gets a path that cannot be made:
    `mkdir` raises OSError there, as it does where the home cannot be written.
    """
    try:
        home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    except RuntimeError:
        home = f"{os.devnull}/without HOME or XDG_CACHE_HOME"
    return Path(home) / "bert_jax"
