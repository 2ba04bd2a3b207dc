"""Our program timed in turn with PyTorch's programs and with matrix products."""

import contextlib
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from bert_jax.benchmark.devices import OurModel, matmul_timers, utilisation
from bert_jax.benchmark.figures import Figures, Timer, alternate, rates, ratios
from bert_jax.benchmark.options import InferenceOptions
from bert_jax.benchmark.pytorch import Job, TorchArrays, TorchProcess, check_installed
from bert_jax.config import PretrainConfig


def torch_jobs(
    options: InferenceOptions, config: PretrainConfig, variants: Sequence[str]
) -> dict[str, Job]:
    """Return the jobs of PyTorch, by the name of their column."""
    compiles = (False, True) if options.torch_compile else (False,)
    device = check_installed(jax.default_backend())
    return {
        f"torch_{variant}" + "_compiled" * compile: Job(
            variant=variant,
            compile=compile,
            device=device,
            threads=options.threads,
            microbatches=config.microbatches,
            model=config.model,
            optimizer=config.optimizer,
        )
        for compile in compiles
        for variant in variants
    }


def start_processes(
    stack: contextlib.ExitStack, jobs: Mapping[str, Job], arrays: TorchArrays
) -> tuple[dict[str, TorchProcess], dict[str, str]]:
    """Start a process for each job.

    Returns:
        The processes that are ready, and the errors of those that failed.

    Raises:
        RuntimeError: all failed.
    """
    ready, failed = {}, {}
    for name, job in jobs.items():
        process = stack.enter_context(TorchProcess(job, arrays))
        try:
            process.wait_until_ready()
            ready[name] = process
        except RuntimeError as error:
            failed[name] = str(error)
            print(f"{name}: left out: {error}", file=sys.stderr)
    if not ready:
        raise RuntimeError(f"No PyTorch program runs here: {failed}")
    return ready, failed


def measure(
    options: InferenceOptions,
    config: PretrainConfig,
    ours: OurModel,
    variants: Sequence[str],
    arrays: Callable[[], TorchArrays],
) -> Figures:
    """Time our program, PyTorch's with `--compare`, and matrix products, in turn.

    Args:
        variants: PyTorch's programs; each runs in a process of its own.
        arrays: makes the inputs of PyTorch.
    """
    with contextlib.ExitStack() as stack:
        ready: dict[str, TorchProcess] = {}
        failed: dict[str, str] = {}
        if options.compare:
            jobs = torch_jobs(options, config, variants)
            ready, failed = start_processes(stack, jobs, arrays())
        products = matmul_timers()
        timers: dict[Any, Timer] = {"ours": ours.time_steps, **products}
        timers |= {name: process.time_steps for name, process in ready.items()}
        steps = options.steps or (2 if jax.default_backend() == "cpu" else 20)
        seconds = alternate(timers, options.repeats, steps)
    matmul = max(2 * n**3 / statistics.median(seconds[n]) for n in products)

    def column(name: str, figures: Figures, num_devices: int) -> Figures:
        speed = rates(seconds[name], ours.sequences, ours.tokens, ours.flops)
        flops_per_second = speed["model_flops_per_second"]
        return figures | speed | utilisation(flops_per_second, matmul, num_devices)

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
