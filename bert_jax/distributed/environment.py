"""What a process tells JAX's backends before they start: flags, devices, the cache.

Nothing here imports JAX: variables of the environment are read when it is imported and
when its backend starts. Where it is imported already, it is told what it can still be.
"""

import contextlib
import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from bert_jax.storage.caches import cache_directory

DETERMINISTIC = "xla_gpu_deterministic_ops"
"""XLA's flag for GPUs; CPUs and TPUs give the same bits without it."""
CACHE = "JAX_COMPILATION_CACHE_DIR"
CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
LIBC = "CS_GNU_LIBC_VERSION"
TUNABLES = "GLIBC_TUNABLES"
COORDINATOR = "BERT_JAX_COORDINATOR"
DETECT = "BERT_JAX_DISTRIBUTED"
SEVERAL_PROCESSES = (COORDINATOR, DETECT)
"""Variables of which one is set where a run has several processes."""


def prepare(
    environment: MutableMapping[str, str],
    deterministic: bool = False,
    keep_programs: bool = True,
) -> None:
    """Set what training needs, in `environment` and in JAX; to be called before both.

    What is set there already is kept.

    Args:
        environment: of this process.
        deterministic: the same bits from the same run on a GPU, at the cost of speed.
        keep_programs: keep compiled programs on disk, for the next start.

    Raises:
        ValueError: `deterministic` comes too late, or the environment forbids it.
    """
    if deterministic:
        make_deterministic(environment)
    if keep_programs:
        keep_compiled(environment)


def has_started() -> bool:
    """Whether JAX has devices, and reads no more flags."""
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(bridge.backends_are_initialized())


def make_deterministic(environment: MutableMapping[str, str]) -> None:
    """Add XLA's flag to those that are set.

    Raises:
        ValueError: they say otherwise, or JAX has read them.
    """
    flags = environment.get("XLA_FLAGS", "").split()
    told = [flag for flag in flags if flag.lstrip("-").split("=")[0] == DETERMINISTIC]
    if told:
        # XLA takes the last one; a flag without a value is true.
        if told[-1].partition("=")[2].lower() not in ("", "1", "true"):
            raise ValueError(
                f"XLA_FLAGS has {told[-1]}, and --deterministic asks for the opposite; "
                "drop one of them."
            )
        return
    if has_started():
        raise ValueError(
            "deterministic=True comes too late: JAX has started and read XLA_FLAGS. "
            "Call bert_jax.distributed.environment.prepare first, or start with "
            f"XLA_FLAGS=--{DETERMINISTIC}=true."
        )
    environment["XLA_FLAGS"] = " ".join([*flags, f"--{DETERMINISTIC}=true"])


def keep_compiled(environment: MutableMapping[str, str]) -> None:
    """Give JAX a directory for compiled programs: `bert_jax` in the user's caches.

    Another that was chosen is kept, and an empty `JAX_COMPILATION_CACHE_DIR` is a
    choice too. Several processes keep theirs in the workdir that they share: see
    `compilation_cache.py`.
    """
    several = any(environment.get(name, "0") != "0" for name in SEVERAL_PROCESSES)
    if not several:
        _keep_in(cache_directory(environment) / "programs", environment)


def _keep_in(directory: Path, environment: MutableMapping[str, str]) -> None:
    """Have JAX keep programs there, unless it has been told where, or it is unsafe."""
    jax = sys.modules.get("jax")
    if CACHE in environment or (jax and jax.config.jax_compilation_cache_dir):
        return
    with contextlib.suppress(OSError):  # what cannot be kept is compiled again
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if reason := distrust(directory):
            print(
                f"Compiled programs are not kept: {reason}, or name another directory "
                f"in {CACHE}.",
                file=sys.stderr,
            )
            return
        environment[CACHE] = str(directory)
        if jax is not None:
            jax.config.update("jax_compilation_cache_dir", str(directory))


def distrust(directory: Path) -> str:
    """Why compiled programs in `directory` must not be run; empty: they may.

    Whoever can write there could have us run programs of theirs.

    Raises:
        OSError: it cannot be looked at.
    """
    if not hasattr(os, "getuid"):
        return ""
    found = directory.stat()
    if found.st_uid != os.getuid():
        return (
            f"{directory} belongs to user {found.st_uid} and not to {os.getuid()}, who "
            "runs this; remove it"
        )
    if found.st_mode & 0o022:
        return (
            f"others may write to {directory} (mode {found.st_mode & 0o777:o}); see "
            f"what is in it, then `chmod 700 {directory}`"
        )
    return ""


def split_cpu(environment: MutableMapping[str, str], number: int) -> None:
    """Have JAX see the CPU as `number` devices, unless it has started.

    GPUs and TPUs stay what they are.
    """
    if has_started():
        return
    environment[CPU_DEVICES] = str(number)
    if (jax := sys.modules.get("jax")) is not None:
        jax.config.update("jax_num_cpu_devices", number)


def start_with_huge_pages(environment: Mapping[str, str]) -> None:
    """Begin this process anew with memory in pages of 2 MB, unless that is settled.

    A step gives back and takes anew some gigabytes, and glibc asks the kernel for them
    in pages of 4 kB, half a million at BERT base. It reads the variable when a process
    begins, so that it must begin again; its number, arguments and streams stay.
    """
    glibc = LIBC in getattr(os, "confstr_names", ())
    if not glibc or TUNABLES in environment or not sys.orig_argv:
        return
    told = {**environment, TUNABLES: "glibc.malloc.hugetlb=1"}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], told)
