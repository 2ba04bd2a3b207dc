"""Compile the training step for accelerators by their own compiler.

Nothing runs: times are the compiler's estimate, which only TPUs' compiler gives.
"""

import dataclasses
import time

from bert_jax.benchmark.figures import Figures
from bert_jax.benchmark.options import CompileOptions, TrainOptions
from bert_jax.benchmark.steps import synthetic_task
from bert_jax.config import MeshConfig, PretrainConfig
from bert_jax.data.pipeline import Batch
from bert_jax.dry_run.estimate import Estimate, estimate, estimated_time
from bert_jax.dry_run.topologies import (
    Topology,
    compiler_version,
    devices_of,
    parse_topology,
)
from bert_jax.tasks.task import Task

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
    mesh = MeshConfig(fsdp=options.fsdp, tensor=options.tensor)
    config = dataclasses.replace(config, mesh=mesh)
    return compile_step(config, task, task.batch(0), topology)


def compile_step(
    config: PretrainConfig, task: Task, batch: Batch, topology: Topology
) -> Figures:
    """Compile the step of a configuration for a topology; as `benchmark_compile`.

    Args:
        batch: for the shapes of its arrays.

    Raises:
        ValueError: the compiler is not installed, or the mesh does not fit.
    """
    devices = devices_of(topology)
    cpu_start = time.process_time()
    step = estimate(task, config, batch, devices)
    cpu_seconds = time.process_time() - cpu_start
    collectives = step.collectives or {}
    flops = task.flops(batch) / len(devices)
    return {
        "device": devices[0].device_kind,
        "devices": len(devices),
        "compiler": compiler_version(topology),
        "compile_seconds": step.seconds,
        "compile_cpu_seconds": cpu_seconds,
        "memory_of_each_mib": {
            "parameters": step.parameters / _MIB,
            "optimizer": step.optimizer / _MIB,
            "activations and gradients": step.temporary / _MIB,
            "in all": step.total / _MIB,
        },
        "fits": step.fits(topology.usable_memory),
        "collectives": {name: count for name, (count, _) in collectives.items()},
        "collectives_mib": {
            name: size / _MIB for name, (_, size) in collectives.items()
        },
        **_time(step, devices[0].device_kind, topology.clock, flops),
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
