"""Our program timed in turn with PyTorch's programs and with matrix products."""

import contextlib
import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from bert_jax.apps.benchmark.figures import (
    Figures,
    Timer,
    alternate,
    rates,
    ratios,
    seconds_per_step,
)
from bert_jax.apps.benchmark.options import InferenceOptions
from bert_jax.apps.benchmark.pytorch import TorchArrays, start_processes
from bert_jax.config import PretrainConfig
from bert_jax.distributed.peaks import peak_flops_per_second


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
        seconds = seconds_per_step(self.dispatch, jax.block_until_ready, steps)
        # Read now, before other programs on this device raise the peak.
        memory = jax.devices()[0].memory_stats() or {}
        if peak := memory.get("peak_bytes_in_use"):
            self.figures.setdefault("device_peak_mib", peak / (1 << 20))
        return seconds


def compile_program(function: Any, *arguments: PyTree) -> tuple[Any, Figures]:
    """Compile a jitted function; return the program, and its seconds and memory."""
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


def time_products(size: int, steps: int) -> float:
    """Return the seconds per product of square matrices, one product per step.

    They are bfloat16, as in data sheets; on a CPU float32.
    """
    on_cpu = jax.default_backend() == "cpu"
    dtype, num_products = (jnp.float32, 2) if on_cpu else (jnp.bfloat16, 16)
    keys = jax.random.split(jax.random.key(0))
    # Divided by √size, so that the products stay of the same magnitude.
    first = jax.random.normal(keys[0], (size, size), dtype)
    second = jax.random.normal(keys[1], (size, size), dtype) / size**0.5
    chain = functools.partial(_multiply, first, second, num_products)
    num_chains = max(1, steps // num_products)
    return seconds_per_step(chain, jax.block_until_ready, num_chains) / num_products


def utilisation(flops_per_second: float, matmul: float) -> Figures:
    """Return fractions of a device's peak in its data sheet, if known, and measured."""
    peak = peak_flops_per_second(jax.devices()[0].device_kind)
    figures = {} if peak is None else {"mfu": flops_per_second / peak}
    return figures | {"mfu_of_measured_matmul": flops_per_second / matmul}


def measure(
    options: InferenceOptions,
    config: PretrainConfig,
    ours: OurModel,
    variants: Sequence[str],
    arrays: Callable[[], TorchArrays],
) -> Figures:
    """Time our program, PyTorch's with `--compare`, and matrix products, in turn.

    The variants are PyTorch's programs, each in a process of its own.
    """
    on_cpu = jax.default_backend() == "cpu"
    steps = options.steps or (2 if on_cpu else 20)
    # The fastest size shows the device's peak.
    sizes = (1024, 2048) if on_cpu else (4096, 8192, 16384)
    timers: dict[Any, Timer] = {"ours": ours.time_steps}
    timers |= {size: functools.partial(time_products, size) for size in sizes}
    with contextlib.ExitStack() as stack:
        ready, failed = start_processes(stack, options, config, variants, arrays)
        timers |= {name: process.time_steps for name, process in ready.items()}
        seconds = alternate(timers, options.repeats, steps)
    matmul = max(2 * n**3 / statistics.median(seconds[n]) for n in sizes)

    def column(name: str, figures: Figures, num_devices: int) -> Figures:
        speed = rates(seconds[name], ours.sequences, ours.tokens, ours.flops)
        flops_per_second = speed["model_flops_per_second"] / num_devices
        return figures | speed | utilisation(flops_per_second, matmul)

    figures = {
        "device": jax.devices()[0].device_kind,
        "devices": ours.num_devices,
        "steps": steps,
        "measured_matmul_flops_per_second": matmul,
    }
    figures |= column("ours", ours.figures, ours.num_devices)
    figures["torch"] = {
        name: column(name, process.figures, 1) | ratios(seconds["ours"], seconds[name])
        for name, process in ready.items()
    }
    figures["left_out"] = failed
    return {name: value for name, value in figures.items() if value != {}}
