"""Accelerators by name, for which a step can be compiled where there is none.

libtpu compiles for TPUs and JAX's CUDA plugin for GPUs; neither needs the device. In
`v5e:4x4` the numbers are the chips along each axis of a slice; `h200:8` is eight GPUs
of one host, and `h200:2x8` those of two hosts.
"""

import contextlib
import dataclasses
import importlib.metadata
import math
import re
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental import topologies

from bert_jax.config.checks import did_you_mean

GIB = 1 << 30


@dataclasses.dataclass(frozen=True)
class Tpu:
    """A TPU chip; figures from Google's pages of each version."""

    memory: int
    """Bytes of HBM of a JAX device."""
    axes: int
    """Axes of a slice's torus."""
    clock: float = 0.0
    """Cycles a second; 0: unknown."""
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    """What libtpu needs besides the name."""
    cores: int = 1
    """Cores of a JAX device, which share the blocks of a kernel."""


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU; figures from NVIDIA's data sheets and the CUDA C++ Programming Guide."""

    memory: int
    """Bytes of memory."""
    kind: str
    """As JAX names it."""
    capability: tuple[int, int]
    cores: int
    """Streaming multiprocessors."""
    fp32_units: int
    """Units for float32 in each core."""
    clock_ghz: float
    bandwidth: int
    """Bytes of memory read a second."""
    cache: int
    """Bytes of the L2 cache."""
    shared_memory: int
    """Bytes of shared memory of a core; one block takes 1 KiB less."""


_H100 = Gpu(
    memory=80 * GIB,
    kind="NVIDIA H100 80GB HBM3",
    capability=(9, 0),
    cores=132,
    fp32_units=128,
    clock_ghz=1.98,
    bandwidth=3_350_000_000_000,
    cache=50 << 20,
    shared_memory=228 << 10,
)
ACCELERATORS: dict[str, Tpu | Gpu] = {
    "v4": Tpu(32 * GIB, 3, 1.05e9, {"chip_config_name": "megacore"}, cores=2),
    "v5e": Tpu(16 * GIB, 2, 1.503e9),
    "v5p": Tpu(95 * GIB, 3, 1.75e9, cores=2),
    "v6e": Tpu(32 * GIB, 2, 1.75e9),
    "tpu7x": Tpu(96 * GIB, 3),
    "a100": Gpu(
        memory=80 * GIB,
        kind="NVIDIA A100-SXM4-80GB",
        capability=(8, 0),
        cores=108,
        fp32_units=64,
        clock_ghz=1.41,
        bandwidth=2_039_000_000_000,
        cache=40 << 20,
        shared_memory=164 << 10,
    ),
    "h100": _H100,
    "h200": dataclasses.replace(
        _H100,
        memory=141_000_000_000,
        kind="NVIDIA H200",
        bandwidth=4_800_000_000_000,
    ),
}


@dataclasses.dataclass(frozen=True)
class Topology:
    """Accelerators that are compiled for: `v5e:4x4` or `h200:8`."""

    name: str
    accelerator: Tpu | Gpu
    shape: tuple[int, ...]

    @property
    def usable_memory(self) -> float:
        """The bytes that a program may use on each device.

        JAX takes three quarters of a GPU, unless XLA_PYTHON_CLIENT_MEM_FRACTION is set.
        """
        memory = self.accelerator.memory
        return 0.75 * memory if isinstance(self.accelerator, Gpu) else float(memory)

    @property
    def clock(self) -> float:
        """Cycles a second of a TPU; 0: unknown, or a GPU."""
        return self.accelerator.clock if isinstance(self.accelerator, Tpu) else 0.0


def parse_topology(name: str) -> Topology:
    """Return the topology of a name such as `v5e:4x4`; ValueError if it is unknown."""
    kind, _, numbers = name.partition(":")
    accelerator = ACCELERATORS.get(kind)
    if accelerator is None:
        known = tuple(ACCELERATORS)
        hint = did_you_mean(kind, known) or ", as in v5e:4x4 or h200:8."
        raise ValueError(f"topology={name} must begin with {', '.join(known)}{hint}")
    is_tpu = isinstance(accelerator, Tpu)
    axes = accelerator.axes if isinstance(accelerator, Tpu) else 2
    valid = re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3}){0,2}", numbers, re.ASCII)
    shape = tuple(map(int, numbers.split("x"))) if valid else ()
    if len(shape) != axes and (is_tpu or len(shape) != 1):
        rule = "the GPUs, or hosts x GPUs of each, as {0}:8 or {0}:2x8"
        if is_tpu:
            rule = f"the chips along {axes} axes, as {{0}}:{'x'.join('2' * axes)}"
        raise ValueError(f"topology={name} must give {rule.format(kind)}.")
    return Topology(name, accelerator, shape)


def compiler_version(topology: Topology) -> str:
    """Return the installed package that compiles for a topology, and its version.

    Raise ValueError if it is not installed.
    """
    packages, extra = ("jax-cuda12-plugin", "jax-cuda13-plugin"), "cuda12"
    if isinstance(topology.accelerator, Tpu):
        packages, extra = ("libtpu", "libtpu-nightly"), "topologies"
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{package} {importlib.metadata.version(package)}"
    raise ValueError(
        f"topology={topology.name} needs the compiler of that device; "
        f"pip install 'bert_jax[{extra}]'."
    )


def devices_of(topology: Topology) -> Sequence[jax.Device]:
    """Return the devices of a topology: programs can be compiled for them, not run.

    Raise ValueError if the compiler is not installed, or does not know the shape.
    """
    name, accelerator, shape = topology.name, topology.accelerator, topology.shape
    compiler_version(topology)
    arguments: dict[str, Any]
    if isinstance(accelerator, Tpu):
        arguments = {"platform": "tpu", "topology_name": name, **accelerator.options}
        if math.prod(shape) == 1:
            arguments["chips_per_host_bounds"] = (1, 1, 1)
    else:
        hosts, gpus = (1, *shape)[-2:]
        arguments = {
            "platform": "cuda",
            "topology": f"1x{hosts}x{gpus}",
            "target_config": target_config(accelerator),
        }
    try:
        return topologies.get_topology_desc(**arguments).devices
    except (jax.errors.JaxRuntimeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0][:160].rstrip(".")
        raise ValueError(
            f"topology={name} is not known to its compiler: {reason}."
        ) from error


def target_config(gpu: Gpu) -> str:
    """Return XLA's description of a GPU, a `GpuTargetConfigProto` as text."""
    major, minor = gpu.capability
    return f"""
        gpu_device_info {{
          threads_per_block_limit: 1024
          threads_per_warp: 32
          shared_memory_per_block: {48 << 10}
          shared_memory_per_block_optin: {gpu.shared_memory - 1024}
          shared_memory_per_core: {gpu.shared_memory}
          threads_per_core_limit: 2048
          core_count: {gpu.cores}
          fpus_per_core: {gpu.fp32_units}
          block_dim_limit_x: {2**31 - 1}
          block_dim_limit_y: {2**16 - 1}
          block_dim_limit_z: {2**16 - 1}
          memory_bandwidth: {gpu.bandwidth}
          l2_cache_size: {gpu.cache}
          clock_rate_ghz: {gpu.clock_ghz}
          device_memory_size: {gpu.memory}
          cuda_compute_capability {{ major: {major} minor: {minor} }}
          registers_per_core_limit: 65536
          registers_per_block_limit: 65536
        }}
        platform_name: "CUDA"
        dnn_version_info {{ major: 9 minor: 10 }}
        runtime_version {{ major: 12 minor: 9 }}
        device_description_str: "{gpu.kind}"
    """
