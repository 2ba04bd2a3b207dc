"""Compile pretraining configurations for accelerators, and write a page about it.

python tools/hardware/hardware.py --configs configs/bert_base_128.py

Each program is compiled in a process of its own. A configuration that does not fit is
compiled again with more microbatches.
"""

import concurrent.futures
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from compile_processes import Compilations
from hardware_page import page
from options import HardwareOptions
from targets import BenchmarkTarget, open_targets

from bert_jax.apps.benchmark.command import (
    Parser,
    add_fields,
    parsed_values,
    write_figures,
)
from bert_jax.apps.benchmark.figures import Figures
from bert_jax.cli.main import main
from bert_jax.distributed.environment import configure_topology


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


def compile_all(options: HardwareOptions) -> Figures:
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


def run(arguments: Sequence[str]) -> int:
    """Compile what the arguments name; return 1 if a program could not be compiled."""
    parser = Parser(
        prog="python tools/hardware/hardware.py", description=HardwareOptions.__doc__
    )
    add_fields(parser, HardwareOptions)
    options = HardwareOptions(**parsed_values(parser, arguments))
    configure_topology(os.environ)
    figures = compile_all(options)
    write_figures(figures, options.json)
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(run=run))
