"""What `pretrain --dry-run` prints."""

import itertools
import os
from collections.abc import Iterator, Sequence

import jax
from etils import epath
from jaxtyping import Array, UInt32

from bert_jax.apps.dry_run.advise import advise
from bert_jax.apps.dry_run.describe import MORE, describe, details
from bert_jax.apps.dry_run.measured import measured_lines
from bert_jax.checkpoints.restore import read_base_key
from bert_jax.checkpoints.steps import CHECKPOINTS
from bert_jax.config import PretrainConfig
from bert_jax.distributed.topologies import GIB, devices_of, parse_topology
from bert_jax.runs.estimate import choose_devices
from bert_jax.runs.fitting import Workdir
from bert_jax.runs.init_from import Shape
from bert_jax.runs.pretraining import open_for, resolve_run
from bert_jax.storage.remote import open_directory
from bert_jax.training.resume import find_resume
from bert_jax.training.run import Run


def dry_run(
    config: PretrainConfig,
    workdir: str | os.PathLike[str],
    devices: int = 0,
    memory_gib: float = 0.0,
    extend: bool = False,
    topology: str = "",
    named_shape: Shape | None = None,
    verbose: bool = False,
) -> Iterator[str]:
    """Yield lines on what `pretrain` would cost and do; no run is started.

    A few steps are measured on this machine's devices, unless `devices` or `topology`
    names others. Raise ValueError where `pretrain` does, or if JAX has started with
    fewer devices.

    Args:
        devices: compile the step for this many devices, and report its memory; 0: no.
        memory_gib: the memory of each device; if it is too little, report what would
            fit. 0: unknown, or that of `topology`.
        extend: allow other steps, or another learning rate, than the run had.
        topology: compile the step for these accelerators, which need not be present;
            a name for `parse_topology`. Call `configure_topology` before JAX starts.
        named_shape: options of the model's shape, as those of `pretrain`.
        verbose: yield also each tensor, the compiler's figures and the first rows.
    """
    target = parse_topology(topology) if topology else None
    chosen: Sequence[jax.Device] | None = devices_of(target) if target else None
    if devices and not target:
        chosen = choose_devices(devices)
    dataset, config = open_for(config)
    path = open_directory(workdir) if workdir else epath.Path()
    read = Workdir(path, find_resume(path) if workdir else None, extend=extend)
    run, note = resolve_run(config, dataset, read, named_shape, devices=chosen)
    task, config = run.task, run.config
    rest = [[note] if note else [], describe(config, dataset, task)]
    rest.append(details(config, dataset, task, base_key_of(run)) if verbose else [MORE])
    batch = task.batch(config.data.first_step)
    if chosen is None:
        steps = config.num_steps - (
            run.resume.step if run.resume else config.data.first_step
        )
        cost = measured_lines(run, batch, steps, verbose)
    else:
        memory = memory_gib * GIB or (target.usable_memory if target else 0.0)
        cost = advise(run, batch, memory, target)
    return itertools.chain(cost, *rest)


def base_key_of(run: Run[PretrainConfig]) -> UInt32[Array, "2"] | None:
    """Return the base key that a run goes on with; None: it has that of its seed."""
    if isinstance(run.source, epath.Path):
        return read_base_key(run.source)
    if run.resume:
        return read_base_key(run.workdir / CHECKPOINTS / str(run.resume.step))
    return None
