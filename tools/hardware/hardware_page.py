"""The Markdown page of configurations that were compiled for accelerators."""

import datetime
import itertools
import shlex
from collections.abc import Iterator, Sequence

import jax
from options import HardwareOptions
from targets import BenchmarkTarget

from bert_jax.apps.benchmark.figures import Figures
from bert_jax.distributed.topologies import GIB

HOW_TO_READ = """\
GiB and collectives are those of one device, as the compiler allocates them: *state* is
parameters and optimizer, *temporary* all that lives only within a step, and *in all*
stands beside what a program may use (all of a TPU, three quarters of a GPU). If the
rows do not fit with the configuration's *microbatches*, the number after the arrow is
what was tried last. Sizes of collectives are of their results; what is in the loop of
microbatches counts once.

Milliseconds a step and the MFU are *the compiler's estimate*. Only the compiler of TPUs
gives one, and only for one microbatch. It leaves out collectives, scatters and random
numbers, so a real step takes longer. Programs for GPUs are not tuned where there is no
GPU: the page says nothing of their speed. Nothing here has shown that a program runs.
"""
HEADINGS = (
    "topology",
    "rows a device",
    "microbatches",
    "state",
    "temporary",
    "in all",
    "fits",
    "collectives",
    "the compiler's estimate, ms",
    "MFU by it",
    "seconds of CPU to compile",
)


def page(
    options: HardwareOptions,
    rows: Sequence[tuple[BenchmarkTarget, Figures]],
    date: str = "",
) -> str:
    """Return the page of targets and their figures, a table for each configuration.

    Args:
        date: of the compilations; empty: today.
    """
    date = date or datetime.date.today().isoformat()
    return "\n".join(_lines(options, rows, date)) + "\n"


def _lines(
    options: HardwareOptions, rows: Sequence[tuple[BenchmarkTarget, Figures]], date: str
) -> Iterator[str]:
    compilers = [figures["compiler"] for _, figures in rows if "compiler" in figures]
    versions = [*dict.fromkeys(compilers), f"jax {jax.__version__}"]
    yield "# Hardware\n"
    yield "Pretraining, compiled for accelerators by their own compilers; never run.\n"
    yield f"{date}, {', '.join(versions)}:\n"
    yield f"    {command(options)}\n"
    yield HOW_TO_READ
    for name, group in itertools.groupby(rows, key=lambda row: row[0].name):
        table = list(group)
        yield f"## {name}\n"
        yield f"{description(table[0][0])}\n"
        yield f"| {' | '.join(HEADINGS)} |"
        yield "|---" * len(HEADINGS) + "|"
        for target, figures in table:
            yield f"| {' | '.join(cells(target, figures))} |"
        yield ""


def command(options: HardwareOptions) -> str:
    """Return the command that makes the page."""
    words = ["python", "tools/hardware/hardware.py", "--configs", *options.configs]
    words += ["--topologies", *options.topologies, "--output", options.output]
    return shlex.join(words)


def description(target: BenchmarkTarget) -> str:
    """Return what the configuration trains, in a sentence."""
    config, model = target.config, target.config.model
    mesh = "".join(
        f", mesh.{axis}={size}"
        for axis, size in (("fsdp", config.mesh.fsdp), ("tensor", config.mesh.tensor))
        if size > 1
    )
    remat = "" if model.remat == "none" else f", model.remat={model.remat}"
    return (
        f"{model.num_hidden_layers} layers of {model.hidden_size}, a vocabulary of "
        f"{model.vocab_size:,}, {model.dtype}, {config.optimizer.algorithm}; "
        f"{config.batch_size:,} rows of {config.data.sequence_length} tokens a step"
        f"{mesh}{remat}."
    )


def cells(target: BenchmarkTarget, figures: Figures) -> list[str]:
    """Return a row of the table: what was compiled last, or why that failed."""
    own, count = target.config.microbatches, figures["microbatches"]
    row = [
        target.topology.name,
        f"{target.shard_rows:,}",
        str(own) if own == count else f"{own} → {count}",
    ]
    if error := figures.get("error"):
        # A bar would end the cell.
        return [*row, f"failed: {error}".replace("|", "/"), *[""] * 7]
    memory = figures["memory_of_each_mib"]
    state = memory["parameters"] + memory["optimizer"]
    usable = target.topology.usable_memory / GIB
    seconds = figures.get("estimated_step_seconds")
    mfu = figures.get("estimated_mfu")
    return [
        *row,
        f"{state / 1024:.2f}",
        f"{memory['activations and gradients'] / 1024:.2f}",
        f"{memory['in all'] / 1024:.2f} of {usable:.1f}",
        "yes" if figures["fits"] else "no",
        _collectives(figures) or "—",
        "—" if seconds is None else f"{seconds * 1e3:.1f}",
        "—" if mfu is None else f"{mfu:.0%}",
        f"{figures['compile_cpu_seconds']:.0f}",
    ]


def _collectives(figures: Figures) -> str:
    """Return the number of each kind, and the size of their results."""
    sizes = figures["collectives_mib"]
    return ", ".join(
        f"{count} {name} of {sizes[name]:,.1f} MiB"
        for name, count in figures["collectives"].items()
    )
