"""Compiled programs of several processes, kept in the workdir that they share.

JAX reads such a directory in every process and writes to it in process 0 alone, so that
it must be one that all hosts see:
https://docs.jax.dev/en/latest/persistent_compilation_cache.html
"""

from pathlib import Path
from typing import Any

import jax
from etils import epath

from bert_jax.distributed.collectives import (
    broadcast_from_primary,
    first_error,
    is_primary,
)
from bert_jax.distributed.environment import distrust
from bert_jax.storage.atomic import is_address
from bert_jax.terminal.messages import say

COMPILATION_CACHE = "compilation_cache"


def share_compilation_cache(workdir: epath.Path) -> None:
    """Have several processes keep compiled programs in `workdir`, for the next start.

    One process alone keeps them among the user's caches (see `environment.prepare`).
    Where `JAX_COMPILATION_CACHE_DIR` is set, empty included, that choice is kept.

    The hosts of GPUs tune the kernels of a program together while they compile it. A
    host that finds the program compiled would leave the others waiting, so that no
    process uses the directory unless all of them list the same programs there.
    """
    if jax.process_count() == 1:
        return
    config: Any = jax.config
    if first_error("" if config.jax_compilation_cache_dir is None else "chosen"):
        return
    directory = workdir / COMPILATION_CACHE
    problem = first_error(_make(directory) if is_primary() else "")
    if not problem:
        programs, problem = _programs(directory)
        of_primary = broadcast_from_primary(programs)
        if not problem and programs != of_primary:
            number = jax.process_index()
            problem = f"process {number} does not see those of process 0 there"
        problem = first_error(problem)
    if problem:
        if is_primary():
            say(f"Compiled programs are not kept in {directory}: {problem}.")
        return
    # XLA's own caches within JAX's would be written by process 0 while others read.
    config.update("jax_persistent_cache_enable_xla_caches", "none")
    config.update("jax_compilation_cache_dir", str(directory))


def _make(directory: epath.Path) -> str:
    """Make the directory; why it cannot be made, "": it is there.

    A run needs no cache: what cannot be kept is compiled again.
    """
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return " ".join(str(error).split())
    return ""


def _programs(directory: epath.Path) -> tuple[list[str], str]:
    """The names of the programs there; and why they must not be run, "": they may."""
    try:
        names = sorted(path.name for path in directory.glob("*-cache"))
        return names, "" if is_address(directory) else distrust(Path(directory))
    except OSError as error:
        return [], " ".join(str(error).split())
