"""Compile pretraining configurations for accelerators, and write a page about it.

Each program is compiled in a process of its own. A configuration that does not fit is
compiled again with more microbatches.
"""

import concurrent.futures
from collections.abc import Sequence
from pathlib import Path

from bert_jax.benchmark.compile_processes import Compilations
from bert_jax.benchmark.figures import Figures
from bert_jax.benchmark.hardware_page import page
from bert_jax.benchmark.options import HardwareOptions
from bert_jax.benchmark.targets import BenchmarkTarget, open_targets


def compile_targets(
    compilations: Compilations, targets: Sequence[BenchmarkTarget], jobs: int
) -> list[Figures]:
    """Return the figures of all targets, `jobs` of them at a time."""
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        return list(pool.map(compilations.compile_until_it_fits, targets))
    except BaseException:
        compilations.stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def benchmark_hardware(options: HardwareOptions) -> Figures:
    """Compile all configurations for all topologies, and write the page.

    Raises:
        ValueError: as `open_targets`; nothing has been compiled then.
    """
    targets = open_targets(options)
    compilations = Compilations(Path(options.results))
    results = compile_targets(compilations, targets, options.jobs)
    rows = list(zip(targets, results, strict=True))
    Path(options.output).write_text(page(options, rows), encoding="utf-8")
    return {
        "compiled": compilations.num_compiled,
        "kept": compilations.num_kept,
        "failed": sum("error" in figures for figures in results),
    }
