"""A program of ours, timed in turn with PyTorch's and with products of matrices."""

import argparse
import contextlib
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax

from bert_jax.benchmark.devices import OurModel, matmul_turns, utilisation
from bert_jax.benchmark.figures import Figures, Turn, alternate, rates, ratios
from bert_jax.benchmark.pytorch import Arrays, Job, TorchProcess, check_installed
from bert_jax.config import PretrainConfig


def jobs(
    options: argparse.Namespace, config: PretrainConfig, variants: Sequence[str]
) -> dict[str, Job]:
    """What PyTorch is to do, by the name of the column."""
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


def started(
    stack: contextlib.ExitStack, asked: dict[str, Job], arrays: Arrays
) -> tuple[dict[str, TorchProcess], dict[str, str]]:
    """The processes that are ready to run, and why others are not.

    Raises:
        RuntimeError: none is ready.
    """
    ready, failed = {}, {}
    for name, job in asked.items():
        process = stack.enter_context(TorchProcess(job, arrays))
        try:
            process.wait_until_ready()
            ready[name] = process
        except RuntimeError as error:
            failed[name] = str(error)
            print(f"{name}: left out: {error}", file=sys.stderr)
    if not ready:
        raise RuntimeError(f"PyTorch runs nothing here: {failed}")
    return ready, failed


def measure(
    options: argparse.Namespace,
    config: PretrainConfig,
    ours: OurModel,
    variants: Sequence[str],
    arrays: Callable[[], Arrays],
) -> Figures:
    """Times of ours, of PyTorch's where asked, and of products, taken in turn.

    Args:
        variants: what PyTorch is to run, each in a process of its own.
        arrays: makes the rows for it.
    """
    with contextlib.ExitStack() as stack:
        ready: dict[str, TorchProcess] = {}
        failed: dict[str, str] = {}
        if options.compare:
            asked = jobs(options, config, variants)
            ready, failed = started(stack, asked, arrays())
        products = matmul_turns()
        turns: dict[Any, Turn] = {"ours": ours.turn, **products}
        turns |= {name: process.turn for name, process in ready.items()}
        steps = options.steps or (2 if jax.default_backend() == "cpu" else 20)
        seconds = alternate(turns, options.repeats, steps)
    matmul = max(2 * n**3 / statistics.median(seconds[n]) for n in products)

    def told(name: str, more: Figures, num_devices: int) -> Figures:
        found = rates(seconds[name], ours.sequences, ours.tokens, ours.flops)
        share = utilisation(found["model_flops_per_second"], matmul, num_devices)
        return more | found | share

    figures = {
        "device": jax.devices()[0].device_kind,
        "devices": ours.num_devices,
        "steps": steps,
        "measured_matmul_flops_per_second": matmul,
    }
    figures |= told("ours", ours.figures, ours.num_devices)
    theirs = {
        name: told(name, process.figures, 1) | ratios(seconds["ours"], seconds[name])
        for name, process in ready.items()
    }
    more = {"torch": theirs} if theirs else {}
    return figures | more | ({"left_out": failed} if failed else {})
