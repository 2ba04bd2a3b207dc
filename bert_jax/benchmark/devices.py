"""Programs timed by JAX, and how much of the devices' peak speed they reach."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from bert_jax.benchmark.figures import Figures, Timer
from bert_jax.model.flops import peak_flops_per_second


@dataclasses.dataclass
class OurModel:
    """A compiled program of ours, ready to run."""

    dispatch: Callable[[], PyTree]
    """Dispatches one step; returns arrays that are ready when the step is done."""
    sequences: int
    tokens: int
    flops: float
    """The FLOPs of one step."""
    num_devices: int
    figures: Figures
    """Figures that are known before it runs; `time_steps` adds the peak of memory."""

    def time_steps(self, steps: int) -> float:
        """Return the seconds per step; as in training, steps are dispatched ahead."""
        seconds = seconds_per_step(self.dispatch, steps)
        # Read now, before other programs on this device raise the peak.
        memory = jax.devices()[0].memory_stats() or {}
        if "peak_bytes_in_use" in memory:
            peak = memory["peak_bytes_in_use"] / (1 << 20)
            self.figures.setdefault("device_peak_mib", peak)
        return seconds


def seconds_per_step(dispatch: Callable[[], PyTree], steps: int) -> float:
    """Run one step untimed, then `steps`; return the seconds of one of these."""
    jax.block_until_ready(dispatch())
    start = time.perf_counter()
    for _ in range(steps):
        result = dispatch()
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / steps


def compile_program(function: Any, *arguments: PyTree) -> tuple[Any, Figures]:
    """Compile a jitted function ahead of time.

    Returns:
        The program, and the seconds of compiling and the memory of running it.
    """
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
def _multiply(
    first: Float[Array, "D D"], second: Float[Array, "D D"], num_products: int
) -> Float[Array, "D D"]:
    return jax.lax.fori_loop(0, num_products, lambda _, x: x @ second, first)


def matmul_timer(size: int) -> Timer:
    """Return a timer of a chain of products of square matrices, one per step.

    They are bfloat16, as in data sheets; on a CPU float32.
    """
    on_cpu = jax.default_backend() == "cpu"
    dtype, num_products = (jnp.float32, 2) if on_cpu else (jnp.bfloat16, 16)

    def time_products(steps: int) -> float:
        keys = jax.random.split(jax.random.key(0))
        # Divided by √size, so that the products stay of the same magnitude.
        first = jax.random.normal(keys[0], (size, size), dtype)
        second = jax.random.normal(keys[1], (size, size), dtype) / size**0.5
        chain = functools.partial(_multiply, first, second, num_products)
        return seconds_per_step(chain, max(1, steps // num_products)) / num_products

    return time_products


def matmul_timers() -> dict[int, Timer]:
    """Return timers by size of matrix; the fastest size shows the device's peak."""
    sizes = (1024, 2048) if jax.default_backend() == "cpu" else (4096, 8192, 16384)
    return {size: matmul_timer(size) for size in sizes}


def utilisation(flops_per_second: float, matmul: float, num_devices: int) -> Figures:
    """Return fractions of the data sheet's peak, if known, and of the measured one.

    Args:
        flops_per_second: the total of all devices.
        matmul: measured FLOPs per second of one device.
    """
    peak = peak_flops_per_second(jax.devices()[0].device_kind)
    figures: Figures = {} if peak is None else {"mfu": flops_per_second / peak}
    figures["mfu_of_measured_matmul"] = flops_per_second / matmul
    return {name: value / num_devices for name, value in figures.items()}
