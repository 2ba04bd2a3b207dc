"""Configure JAX's backend before it starts: XLA flags, CPU devices, compilation cache.

This module does not import JAX. JAX reads most variables when it is imported and the
rest when its backend starts; if JAX is already imported, its config is updated too.
"""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from bert_jax.storage.caches import cache_directory
from bert_jax.terminal.messages import warn

DETERMINISTIC = "xla_gpu_deterministic_ops"
"""XLA's flag for GPUs; CPUs and TPUs are deterministic without it."""
CACHE = "JAX_COMPILATION_CACHE_DIR"
CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
PLATFORMS = "JAX_PLATFORMS"
LIBC = "CS_GNU_LIBC_VERSION"
TUNABLES = "GLIBC_TUNABLES"
COORDINATOR = "BERT_JAX_COORDINATOR"
DETECT = "BERT_JAX_DISTRIBUTED"
"""This or the one before is set if a run has several processes."""
_TPU_VARIABLES = {
    "TPU_SKIP_MDS_QUERY": "1",  # do not ask a cloud's metadata server for the TPU
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",  # required, but the topology counts
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # libtpu locks the TPU that it does not use
}
_GOOGLE = "0x1ae0"
"""The vendor of TPUs on the PCI bus."""
_DISKS_AND_NETWORK = ("0x01", "0x02")
"""How the classes of these PCI devices begin."""
_TPU_OVERLAP = {
    # libtpu runs an all-reduce in parts, beside the products that follow it, if it has
    # one operand; a combined one would also wait for the last gradient.
    "xla_enable_async_all_reduce": "true",
    "xla_jf_crs_combiner_threshold_count": "1",
    "xla_tpu_enable_async_collective_fusion": "true",
    "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": "true",
    "xla_tpu_enable_async_collective_fusion_multiple_steps": "true",
    "xla_tpu_overlap_compute_collective_tc": "true",
}


def compiler_options(platform: str, overlap: bool) -> dict[str, str]:
    """Return the options with which a training step is compiled.

    They are part of the program, unlike variables of the environment, so that a dry run
    compiles what a run does. GPUs need none: XLA reduces gradients there in some parts
    that run beside the backward pass, as `overlap` asks for.
    """
    return dict(_TPU_OVERLAP) if overlap and platform == "tpu" else {}


def configure_jax(
    environment: MutableMapping[str, str],
    deterministic: bool = False,
    compilation_cache: bool = True,
) -> None:
    """Set in `environment` and in JAX what training needs; keep what is already set.

    Call it before JAX starts its backend. With `deterministic`, GPU runs are
    bit-reproducible, at the cost of speed; with `compilation_cache`, compiled programs
    are kept on disk for the next start. Raise ValueError if `deterministic` comes too
    late, or XLA_FLAGS says the opposite.
    """
    if deterministic:
        make_deterministic(environment)
    if compilation_cache:
        enable_compilation_cache(environment)


def backend_is_initialized() -> bool:
    """Whether JAX has opened its devices and reads no more flags."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(bridge.backends_are_initialized())


def make_deterministic(environment: MutableMapping[str, str]) -> None:
    """Add XLA's flag for deterministic GPU kernels to XLA_FLAGS.

    Raise ValueError if XLA_FLAGS sets it to false, or JAX has read XLA_FLAGS already.
    """
    flags = environment.get("XLA_FLAGS", "").split()
    present = [f for f in flags if f.lstrip("-").split("=")[0] == DETERMINISTIC]
    if present:
        # XLA takes the last one; a flag without a value is true.
        if present[-1].partition("=")[2].lower() not in ("", "1", "true"):
            raise ValueError(
                f"XLA_FLAGS has {present[-1]}, and --deterministic asks for the "
                "opposite; drop one of them."
            )
        return
    if backend_is_initialized():
        raise ValueError(
            "deterministic=True comes too late: JAX has started and read XLA_FLAGS. "
            "Call bert_jax.distributed.environment.configure_jax first, or start with "
            f"XLA_FLAGS=--{DETERMINISTIC}=true."
        )
    environment["XLA_FLAGS"] = " ".join([*flags, f"--{DETERMINISTIC}=true"])


def enable_compilation_cache(environment: MutableMapping[str, str]) -> None:
    """Set JAX's compilation cache to a `bert_jax` directory in the user's caches.

    A no-op if the user has chosen a directory; an empty `JAX_COMPILATION_CACHE_DIR`
    chooses none. Runs of several processes keep their cache in the shared workdir
    instead, see `compilation_cache.py`.
    """
    jax = sys.modules.get("jax")
    if CACHE in environment or (jax and jax.config.jax_compilation_cache_dir):
        return
    if any(environment.get(name, "0") != "0" for name in (COORDINATOR, DETECT)):
        return
    directory = cache_directory(environment) / "programs"
    with contextlib.suppress(OSError):  # without a cache, programs compile again
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if problem := permission_problem(directory):
            warn(
                f"Compiled programs are not kept: {problem}, or name another directory "
                f"in {CACHE}."
            )
            return
        environment[CACHE] = str(directory)
        if jax is not None:
            jax.config.update("jax_compilation_cache_dir", str(directory))


def permission_problem(directory: Path) -> str:
    """Why programs in `directory` are unsafe to run, or "" if they are safe.

    A user who can write there could have this process run their code. Raise OSError if
    the directory cannot be read.
    """
    if not hasattr(os, "getuid"):
        return ""
    status = directory.stat()
    if status.st_uid != os.getuid():
        return (
            f"{directory} belongs to user {status.st_uid} and not to {os.getuid()}, "
            "who runs this; remove it"
        )
    if status.st_mode & 0o022:
        return (
            f"others may write to {directory} (mode {status.st_mode & 0o777:o}); see "
            f"what is in it, then `chmod 700 {directory}`"
        )
    return ""


def set_num_cpu_devices(
    environment: MutableMapping[str, str], num_devices: int
) -> None:
    """Split the CPU into `num_devices` JAX devices; a no-op once JAX has started.

    GPUs and TPUs are not affected.
    """
    if backend_is_initialized():
        return
    environment[CPU_DEVICES] = str(num_devices)
    if (jax := sys.modules.get("jax")) is not None:
        jax.config.update("jax_num_cpu_devices", num_devices)


def set_platform_to_cpu(environment: MutableMapping[str, str]) -> None:
    """Set JAX's platform to the CPU, so that it leaves the accelerator to a run.

    A no-op if `JAX_PLATFORMS` is set, and once JAX has started.
    """
    if environment.get(PLATFORMS) or backend_is_initialized():
        return
    environment[PLATFORMS] = "cpu"
    if (jax := sys.modules.get("jax")) is not None and not jax.config.jax_platforms:
        jax.config.update("jax_platforms", "cpu")


def configure_topology(environment: MutableMapping[str, str]) -> None:
    """Set the variables with which compilers start that have no device.

    Call it before JAX starts.
    """
    environment.update(_TPU_VARIABLES | {PLATFORMS: "cpu"})


def silence_libtpu(
    environment: MutableMapping[str, str], root: Path = Path("/")
) -> None:
    """Keep libtpu quiet where it is installed as a compiler, on a machine without TPU.

    JAX loads it to look for a TPU, and it prints which variables of a TPU's host it
    lacks. A no-op on a host of TPUs, once JAX has started, and if `environment` leaves
    libtpu out or describes a TPU. `root` is that of the machine's files.
    """
    described = {"JAX_FORCE_TPU_INIT", *_TPU_VARIABLES}
    described.discard("TPU_SKIP_MDS_QUERY")  # JAX sets this itself
    # Where no metadata server answers, JAX sets them to "WARNING: could not …".
    is_described = any(
        not environment[name].startswith("WARNING")
        for name in described & environment.keys()
    )
    is_used = "tpu" in (environment.get(PLATFORMS) or "tpu").split(",")
    if not is_used or is_described or backend_is_initialized():
        return
    if importlib.util.find_spec("libtpu") is not None and not has_tpu(root):
        environment.update(_TPU_VARIABLES)


def has_tpu(root: Path = Path("/")) -> bool:
    """Whether the machine, with its files below `root`, may have a TPU.

    A PCI device of Google's may be one, also of a version that JAX does not know yet,
    unless it is the network card or the disk of a virtual machine.
    """
    if any((root / "dev" / name).exists() for name in ("accel0", "vfio/0")):
        return True
    for vendor in (root / "sys/bus/pci/devices").glob("*/vendor"):
        with contextlib.suppress(OSError):  # a device that has just been removed
            if vendor.read_text().strip() == _GOOGLE:
                kind = vendor.with_name("class").read_text()
                if not kind.startswith(_DISKS_AND_NETWORK):
                    return True
    return False


def reexec_with_huge_pages(environment: Mapping[str, str]) -> None:
    """Re-exec with 2 MB huge pages (GLIBC_TUNABLES); a no-op if the variable is set.

    Each step frees and allocates some gigabytes, which glibc by default requests in
    4 kB pages (half a million of them for BERT base). glibc reads the variable only at
    process start, hence the exec; process id, arguments and streams stay the same.
    """
    glibc = LIBC in getattr(os, "confstr_names", ())
    if not glibc or TUNABLES in environment or not sys.orig_argv:
        return
    variables = {**environment, TUNABLES: "glibc.malloc.hugetlb=1"}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], variables)
