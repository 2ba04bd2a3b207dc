"""How a step fits in less memory: which settings are tried, and in which order."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from bert_jax.config import PretrainConfig
from bert_jax.dry_run.estimate import Estimate, estimate, estimate_lines, gib
from bert_jax.tasks.task import Task

MIN_TOKENS = 1024
"""A device's tokens in a microbatch, below which other ways are tried first: its
matrix products become too small to keep it busy."""


def alternatives(
    config: PretrainConfig, number: int, state_fits: bool
) -> list[list[PretrainConfig]]:
    """Ways to make the same update with less memory: those that cost least come first.

    Each list is of one way, from the fastest to the one that takes least; where the
    last does not fit, none of them does.

    Args:
        number: of devices.
        state_fits: whether parameters and moments alone do, as they lie now.
    """
    spread = number // config.mesh.tensor
    rows = config.batch_size // spread
    split = [
        dataclasses.replace(config, microbatches=parts)
        for parts in range(config.microbatches, rows + 1)
        if rows % parts == 0 and parts % config.microbatches == 0
    ]
    length = config.data.sequence_length
    large = [
        each
        for each in split
        if rows // each.microbatches * length >= MIN_TOKENS or each == config
    ]
    weaker = ("none", "attention", "layer")
    kinds = weaker[weaker.index(config.model.remat) + 1 :]
    again = [[_with_remat(each, kind) for each in large] for kind in kinds]
    same_state = [large[1:], *again] if state_fits else []
    widths = [
        width
        for width in range(config.mesh.fsdp + 1, spread + 1)
        if spread % width == 0 and config.model.hidden_size % width == 0
    ]
    wide = [_with_fsdp(config, width) for width in widths]
    widest = widths[-1] if widths else config.mesh.fsdp
    wide_parts = [_with_fsdp(each, widest) for each in large[1:] if widths]
    smallest = [_with_fsdp(_with_remat(each, "layer"), widest) for each in split]
    ways = (*same_state, wide, wide_parts, smallest)
    others = ([each for each in way if each != config] for way in ways)
    return [way for way in others if way]


def _with_remat(config: PretrainConfig, kind: Any) -> PretrainConfig:
    model = dataclasses.replace(config.model, remat=kind)
    return dataclasses.replace(config, model=model)


def _with_fsdp(config: PretrainConfig, width: int) -> PretrainConfig:
    data = config.mesh.data
    if data != -1:
        data = data * config.mesh.fsdp // width
    mesh = dataclasses.replace(config.mesh, data=data, fsdp=width)
    return dataclasses.replace(config, mesh=mesh)


def options(config: PretrainConfig, before: PretrainConfig) -> str:
    """The options that make `config` of `before`."""
    found = []
    for name, ours, theirs in (
        ("microbatches", config.microbatches, before.microbatches),
        ("model.remat", config.model.remat, before.model.remat),
        ("mesh.data", config.mesh.data, before.mesh.data),
        ("mesh.fsdp", config.mesh.fsdp, before.mesh.fsdp),
    ):
        if ours != theirs:
            found.append(f"--{name} {ours}")
    return " ".join(found)


def attempts(
    ways: Sequence[Sequence[PretrainConfig]],
    measure: Callable[[PretrainConfig], Estimate],
    memory: float,
) -> Iterator[tuple[PretrainConfig, Estimate]]:
    """What was measured; of those that fit, the last is the first of `ways` that does.

    The smallest of each way is tried first, and says whether another of it can fit.
    """
    for way in ways:
        found = measure(way[-1])
        yield way[-1], found
        if found.total > memory:
            continue
        low, high = 0, len(way) - 1
        while low < high:
            middle = (low + high) // 2
            found = measure(way[middle])
            yield way[middle], found
            low, high = (low, middle) if found.total <= memory else (middle + 1, high)
        return


def advise(
    config: PretrainConfig,
    build: Callable[[PretrainConfig], Task],
    devices: Sequence[jax.Device],
    memory: float,
) -> Iterator[str]:
    """Lines: what the step of `config` takes, and how it would fit where it does not.

    Args:
        build: configuration → task.
        memory: bytes that each device has; 0: no matter.
    """
    batch = build(config).batch(config.data.first_step)

    def measure(chosen: PretrainConfig) -> Estimate:
        return estimate(build(chosen), chosen, batch, devices)

    found = measure(config)
    yield from estimate_lines(found, devices)
    if not memory:
        return
    if found.total <= memory:
        yield f"it fits in {gib(memory)}"
        return
    yield f"it does not fit in {gib(memory)}; compiling alternatives"
    state = found.parameters + found.optimizer
    if state >= memory:
        yield "  parameters and optimizer alone do not: only --mesh.fsdp can help"
    ways, best = alternatives(config, len(devices), state < memory), ""
    for chosen, found in attempts(ways, measure, memory):
        told = options(chosen, config)
        fits = found.total <= memory
        best = f"{told} ({gib(found.total)} a device)" if fits else best
        yield (
            f"  tried {told}: {gib(found.total)}{', fits' if fits else ''} "
            f"({found.seconds:.0f} s)"
        )
    yield (
        f"turn on {best}"
        if best
        else "none fits: lower batch_size, or use more devices"
    )
