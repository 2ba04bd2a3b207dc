"""Turns taken by JAX, and how much of what the devices can do these use."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bert_jax.benchmark.figures import Figures, Turn
from bert_jax.model.flops import peak_flops_per_second


@dataclasses.dataclass
class OurModel:
    """A compiled program of ours, ready to be run again and again."""

    dispatch: Callable[[], Any]
    """Hands one step to the devices → what is ready when that step is done."""
    sequences: int
    tokens: int
    flops: float
    """Of one step."""
    num_devices: int
    figures: Figures
    """What is known before it is run."""

    def turn(self, steps: int) -> float:
        """As a training run does it: many steps are handed over before any is done."""
        seconds = seconds_of(self.dispatch, steps)
        # Read here, before others on this device raise the peak.
        memory = jax.devices()[0].memory_stats() or {}
        if "peak_bytes_in_use" in memory:
            peak = memory["peak_bytes_in_use"] / (1 << 20)
            self.figures.setdefault("device_peak_mib", peak)
        return seconds


def seconds_of(dispatch: Callable[[], Any], steps: int) -> float:
    """Seconds of a step, of `steps` dispatched together after one that is not timed."""
    jax.block_until_ready(dispatch())
    start = time.perf_counter()
    for _ in range(steps):
        done = dispatch()
    jax.block_until_ready(done)
    return (time.perf_counter() - start) / steps


def compiled(function: Any, *arguments: Any) -> tuple[Any, Figures]:
    """The jitted function, compiled ahead of time; what that took and will take."""
    start = time.perf_counter()
    program = function.lower(*arguments).compile()
    figures: Figures = {"compile_seconds": time.perf_counter() - start}
    memory = program.memory_analysis()
    if memory is not None:
        total = (
            memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            + memory.temp_size_in_bytes
            - memory.alias_size_in_bytes
        )
        figures["program_memory_mib"] = total / (1 << 20)
    return program, figures


@functools.partial(jax.jit, static_argnums=2)
def _products(
    first: Float[Array, "D D"], second: Float[Array, "D D"], number: int
) -> Float[Array, "D D"]:
    return jax.lax.fori_loop(0, number, lambda _, x: x @ second, first)


def matmul_turn(size: int) -> Turn:
    """A chain of products of square matrices, each timed as a step.

    In bfloat16, of which data sheets speak; on a CPU in float32.
    """
    on_cpu = jax.default_backend() == "cpu"
    dtype, products = (jnp.float32, 2) if on_cpu else (jnp.bfloat16, 16)

    def turn(steps: int) -> float:
        keys = jax.random.split(jax.random.key(0))
        # The product of two such matrices has numbers as large again.
        first = jax.random.normal(keys[0], (size, size), dtype)
        second = jax.random.normal(keys[1], (size, size), dtype) / size**0.5
        chain = functools.partial(_products, first, second, products)
        return seconds_of(chain, max(1, steps // products)) / products

    return turn


def matmul_turns() -> dict[int, Turn]:
    """By size, of which one will show the most that the device can do."""
    sizes = (1024, 2048) if jax.default_backend() == "cpu" else (4096, 8192, 16384)
    return {size: matmul_turn(size) for size in sizes}


def utilisation(flops_per_second: float, matmul: float, num_devices: int) -> Figures:
    """Shares of the data sheet's peak, where known, and of the measured one.

    Args:
        flops_per_second: of all devices together.
        matmul: of one device.
    """
    peak = peak_flops_per_second(jax.devices()[0].device_kind)
    figures: Figures = {} if peak is None else {"mfu": flops_per_second / peak}
    figures["mfu_of_measured_matmul"] = flops_per_second / matmul
    return {name: value / num_devices for name, value in figures.items()}
