"""Find settings with which a training step fits in memory; the cheapest come first."""

import dataclasses
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from bert_jax.config import BertConfig, PretrainConfig
from bert_jax.data.pipeline import Batch
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.topologies import Topology
from bert_jax.model.attention import chosen_kernel
from bert_jax.runs.estimate import Estimate, estimate, estimate_lines, gib
from bert_jax.training.run import Run

MIN_TOKENS = 1024
"""Tokens of a device in a microbatch. Below it other methods are tried first, because
the matrix products become too small to keep the device busy."""


def alternatives(
    config: PretrainConfig, num_devices: int, state_fits: bool, width: int = 0
) -> list[list[PretrainConfig]]:
    """Return configurations with the same update and less memory, by their cost.

    Each list is one method, from its fastest configuration to the one with the least
    memory: if the last one does not fit, none of the list does. A teacher, whose
    `hidden_size` is `width`, is sharded, too.
    """
    width = math.gcd(config.model.hidden_size, width)
    num_shards = num_devices // config.mesh.tensor
    shard_rows = config.batch_size // num_shards
    # More microbatches, and those of them that are large enough.
    microbatched = [
        config.changed(microbatches=count)
        for count in range(config.microbatches, shard_rows + 1)
        if shard_rows % count == 0 and count % config.microbatches == 0
    ]
    min_rows = MIN_TOKENS / config.data.sequence_length
    large = [
        option
        for option in microbatched
        if shard_rows // option.microbatches >= min_rows or option == config
    ]
    stronger = _stronger_remat(config.model, config.data.sequence_length)
    remat = [[option.changed(model=change) for option in large] for change in stronger]
    same_sharding = [large[1:], *remat] if state_fits else []
    # Parameters and optimizer sharded over more devices.
    sizes = [
        size
        for size in range(config.mesh.fsdp + 1, num_shards + 1)
        if num_shards % size == 0 and width % size == 0
    ]
    sharded = [_with_fsdp(config, size) for size in sizes]
    max_fsdp = sizes[-1] if sizes else config.mesh.fsdp
    sharded_large = [_with_fsdp(option, max_fsdp) for option in large[1:] if sizes]
    # Everything at once.
    smallest = [
        _with_fsdp(option.changed(model={"remat": "layer"}), max_fsdp)
        for option in microbatched
    ]
    methods = (*same_sharding, sharded, sharded_large, smallest)
    others = ([option for option in method if option != config] for method in methods)
    return [method for method in others if method]


def _stronger_remat(model: BertConfig, length: int) -> list[dict[str, str]]:
    """Return the changes to rematerialization that keeps less than that of `model`."""
    kinds = ("none", "attention", "layer")
    stronger = kinds[kinds.index(model.remat) + 1 :]
    # A fused kernel of attention keeps no scores anyway.
    is_plain = chosen_kernel(model, length, deterministic=False) == "plain"
    return [{"remat": kind} for kind in stronger if is_plain or kind == "layer"]


def _with_fsdp(config: PretrainConfig, size: int) -> PretrainConfig:
    mesh = config.mesh
    data = -1 if mesh.data == -1 else mesh.data * mesh.fsdp // size
    return config.changed(mesh={"data": data, "fsdp": size})


def changed_options(config: PretrainConfig, before: PretrainConfig) -> str:
    """Return the command-line options that change `before` to `config`."""
    names = ("microbatches", "model.remat", "mesh.data", "mesh.fsdp")
    values_of = operator.attrgetter(*names)
    values = zip(names, values_of(config), values_of(before), strict=True)
    return " ".join(f"--{name} {new}" for name, new, old in values if new != old)


def attempts(
    methods: Sequence[Sequence[PretrainConfig]],
    measure: Callable[[PretrainConfig], Estimate],
    memory: float,
) -> Iterator[tuple[PretrainConfig, Estimate]]:
    """Yield what is measured; the last one that fits is the first of all that do.

    The smallest configuration of each method is measured first: if it fits, the fastest
    one of the method that fits is found by binary search.
    """
    for method in methods:
        smallest = measure(method[-1])
        yield method[-1], smallest
        if not smallest.fits(memory):
            continue
        low, high = 0, len(method) - 1
        while low < high:
            middle = (low + high) // 2
            step = measure(method[middle])
            yield method[middle], step
            low, high = (low, middle) if step.fits(memory) else (middle + 1, high)
        return


def advise(
    run: Run[PretrainConfig],
    batch: Batch,
    memory: float,
    topology: Topology | None = None,
) -> Iterator[str]:
    """Yield lines on the memory of a step and, if it is too much, how to reduce it.

    Each device has `memory` bytes; with 0 only the estimate is wanted.
    """
    task: Any = run.task
    config, devices = run.config, list(run.mesh.devices.flat)

    def measure(option: PretrainConfig) -> Estimate:
        mesh = make_mesh(option.mesh, option.batch_size, option.microbatches, devices)
        own = dataclasses.replace(task, config=option)
        changed = dataclasses.replace(run, task=own, config=option, mesh=mesh)
        return estimate(changed, batch)

    name, clock = (topology.name, topology.clock) if topology else ("", 0.0)
    step = estimate(run, batch, name)
    yield from estimate_lines(step, devices, clock, run.task.flops(batch))
    if not memory or step.fits(memory):
        if memory:
            yield f"it fits in {gib(memory)}"
        return
    yield f"it does not fit in {gib(memory)}; compiling alternatives"
    state = step.parameters + step.optimizer
    if state >= memory:
        yield "  parameters and optimizer alone do not: only --mesh.fsdp can help"
    with jax.default_device(devices[0]):
        width = task.teacher.config.hidden_size if config.teacher else 0
        methods = alternatives(config, len(devices), state < memory, width)
    advice = "none fits: lower batch_size, or use more devices"
    for option, step in attempts(methods, measure, memory):
        changes = changed_options(option, config)
        if fits := step.fits(memory):
            advice = f"turn on {changes} ({gib(step.total)} a device)"
        yield (
            f"  tried {changes}: {gib(step.total)}{', fits' if fits else ''} "
            f"({step.seconds:.0f} s)"
        )
    yield advice
