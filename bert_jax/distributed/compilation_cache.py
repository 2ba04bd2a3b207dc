"""JAX's compilation cache for runs of connected processes, kept in the shared workdir.

All processes read the cache directory and process 0 alone writes to it, so all hosts
must see the same directory:
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
from bert_jax.distributed.environment import permission_problem
from bert_jax.storage.atomic import is_address
from bert_jax.terminal.messages import say

COMPILATION_CACHE = "compilation_cache"


def share_compilation_cache(workdir: epath.Path) -> None:
    """Set JAX's compilation cache to a directory in `workdir`, on all processes.

    A no-op if `startup.start` connected no processes (see
    `environment.enable_compilation_cache`), or if `JAX_COMPILATION_CACHE_DIR` is set on
    any process, even to nothing. A TPU slice of one host is a connected run of one.

    Hosts with GPUs autotune a program's kernels collectively while they compile it. A
    host with a cache hit would skip that and leave the others waiting, so no process
    uses the directory unless all of them list the same programs in it.
    """
    if not jax.distributed.is_initialized():
        return
    config: Any = jax.config
    if first_error("" if config.jax_compilation_cache_dir is None else "chosen"):
        return
    directory = workdir / COMPILATION_CACHE
    problem = first_error(_make_directory(directory) if is_primary() else "")
    if not problem:
        programs, problem = _list_programs(directory)
        primary_programs = broadcast_from_primary(programs)
        if not problem and programs != primary_programs:
            process = jax.process_index()
            problem = f"process {process} does not see those of process 0 there"
        problem = first_error(problem)
    if problem:
        if is_primary():
            say(f"Compiled programs are not kept in {directory}: {problem}.")
        return
    # XLA's own caches inside JAX's would be written by process 0 while others read.
    config.update("jax_persistent_cache_enable_xla_caches", "none")
    config.update("jax_compilation_cache_dir", str(directory))


def _make_directory(directory: epath.Path) -> str:
    """Make the directory; return the error, or ""; it does not stop the run."""
    try:
        if is_address(directory):  # epath refuses a mode there
            directory.mkdir(exist_ok=True)
        else:
            directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return " ".join(str(error).split())
    return ""


def _list_programs(directory: epath.Path) -> tuple[list[str], str]:
    """The names of the cached programs, and why they must not be run, or ""."""
    try:
        names = sorted(path.name for path in directory.glob("*-cache"))
        local = None if is_address(directory) else Path(directory)
        return names, permission_problem(local) if local else ""
    except OSError as error:
        return [], " ".join(str(error).split())
