"""Compile the training step for accelerators by their own compiler.

Nothing runs: times are the compiler's estimate, which only TPUs' compiler gives.
"""

import dataclasses
import hashlib
import time
from pathlib import Path

from bert_jax.apps.benchmark.figures import Figures
from bert_jax.apps.benchmark.options import CompileOptions, TrainOptions
from bert_jax.apps.benchmark.steps import synthetic_task
from bert_jax.config import MeshConfig, PretrainConfig
from bert_jax.data.pipeline import Batch
from bert_jax.distributed import environment, peaks, topologies
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.topologies import (
    Topology,
    compiler_version,
    devices_of,
    parse_topology,
)
from bert_jax.runs import estimate, kernel_schedule, program
from bert_jax.runs.estimate import Estimate, estimated_time, lower_step
from bert_jax.tasks.task import Task
from bert_jax.training.run import Run

_MIB = 1 << 20


def benchmark_compile(options: CompileOptions) -> Figures:
    """Compile the step for a topology; return memory, collectives and estimated time.

    Raises:
        ValueError: the topology is not known, its compiler is not installed, or the
            mesh does not fit it.
    """
    topology = parse_topology(options.topology)
    devices = devices_of(topology)
    values = dataclasses.asdict(options)
    names = {field.name for field in dataclasses.fields(TrainOptions)}
    rows = options.batch_size * len(devices) // options.tensor
    shared = {name: value for name, value in values.items() if name in names}
    config, task = synthetic_task(TrainOptions(**(shared | {"batch_size": rows})))
    mesh_names = {field.name for field in dataclasses.fields(MeshConfig)}
    mesh = MeshConfig(**{k: v for k, v in values.items() if k in mesh_names})
    config = dataclasses.replace(config, mesh=mesh)
    figures = compile_step(config, task, task.batch(0), topology)
    # What only `kept` is for.
    return {k: v for k, v in figures.items() if k not in ("program", "reader")}


def compile_step(
    config: PretrainConfig,
    task: Task,
    batch: Batch,
    topology: Topology,
    kept: Figures | None = None,
) -> Figures:
    """Compile the step of a configuration for a topology; as `benchmark_compile`.

    Args:
        batch: for the shapes of its arrays.
        kept: figures of an earlier call, which are returned if they are of the same
            program and compiler.

    Raises:
        ValueError: the compiler is not installed, or the mesh does not fit.
    """
    devices = devices_of(topology)
    cpu_start = time.process_time()
    mesh = make_mesh(config.mesh, config.batch_size, config.microbatches, devices)
    run = Run(task=task, config=config, mesh=mesh)
    lowered = lower_step(run, batch, topology.name)
    same = {
        "program": lowered.fingerprint,
        "compiler": compiler_version(topology),
        "reader": _reader_fingerprint(),
    }
    if kept and same.items() <= kept.items():
        return kept
    step = lowered.compile({})
    figures = {
        "device": devices[0].device_kind,
        "devices": lowered.num_devices,
        "compile_seconds": step.seconds,
        "compile_cpu_seconds": time.process_time() - cpu_start,
    }
    flops = task.flops(batch) / lowered.num_devices
    time_figures = _time(step, devices[0].device_kind, topology.clock, flops)
    return same | figures | _figures(step, topology.usable_memory) | time_figures


def _reader_fingerprint() -> str:
    """Return a hash of the code that reads figures from a compiled program."""
    modules = (estimate, program, kernel_schedule, topologies, environment, peaks)
    files = [*(str(module.__file__) for module in modules), __file__]
    content = b"".join(Path(file).read_bytes() for file in files)
    return hashlib.sha256(content).hexdigest()


def _figures(step: Estimate, usable_memory: float) -> Figures:
    """Return the figures of a compiled step, besides those of time."""
    collectives = step.collectives or {}
    return {
        "memory_of_each_mib": {
            "parameters": step.parameters / _MIB,
            "optimizer": step.optimizer / _MIB,
            "activations and gradients": step.temporary / _MIB,
            "in all": step.total / _MIB,
        },
        "fits": step.fits(usable_memory),
        "collectives": {name: count for name, (count, _) in collectives.items()},
        "collectives_mib": {
            name: size / _MIB for name, (_, size) in collectives.items()
        },
    }


def _time(step: Estimate, device_kind: str, clock: float, flops: float) -> Figures:
    """Return the figures of the compiler's estimate of the time, if it gave one."""
    if not (step.cycles and clock):
        return {}
    seconds, mfu = estimated_time(step, device_kind, clock, flops)
    figures: Figures = {
        "estimated_step_seconds": sum(seconds.values()),
        "estimated_milliseconds": {name: part * 1e3 for name, part in seconds.items()},
    }
    return figures if mfu is None else figures | {"estimated_mfu": mfu}
