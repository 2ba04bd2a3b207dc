"""The options of `bert-jax benchmark`, and what it prints.

Every figure printed was measured in that call.
"""

import argparse
import importlib
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from bert_jax.benchmark.figures import Figures, peak_memory_mib, show, table
from bert_jax.benchmark.pytorch import leave_memory
from bert_jax.config import PRESETS
from bert_jax.terminal.messages import UsageError

# Of each: the module of its function `benchmark_WHAT`, and what is measured.
WHAT = {
    "train": ("training", "the training step: masking, forward, backward, update"),
    "inference": ("inference", "the encoder's hidden states and pooled vectors"),
    "input": ("reading", "rows from memory-mapped shards to batches, in random order"),
    "prepare": ("preparation", "learning a vocabulary from text, and preparing rows"),
}


def positive(text: str) -> int:
    """The option's value as a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} must be at least 1")
    return number


def add_model(command: argparse.ArgumentParser) -> None:
    """What is computed, how often it is timed, and beside what."""
    add = command.add_argument
    add("--model", choices=list(PRESETS), default="base")
    add("--batch-size", type=positive, default=8, help="rows a step (%(default)s)")
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add(
        "--repeats",
        type=positive,
        default=5,
        help="times that each takes its turn; medians are told (%(default)s)",
    )
    add(
        "--steps",
        type=positive,
        help="steps a turn, after one that is not timed (2 on a CPU, elsewhere 20)",
    )
    add("--compare", choices=("torch",), help="time PyTorch and transformers in turn")
    add("--torch-compile", action="store_true", help="PyTorch compiled as well")
    add("--threads", type=positive, help="of PyTorch on a CPU (all that there are)")
    command.set_defaults(
        remat="none", microbatches=1, no_dropout=False, fused_attention=False
    )


def add_training(command: argparse.ArgumentParser) -> None:
    """How the step is computed."""
    add = command.add_argument
    add("--remat", choices=("none", "attention", "layer"), default="none")
    add("--microbatches", type=positive, default=1)
    add("--no-dropout", action="store_true", help="neither here nor in PyTorch")
    add(
        "--fused-attention",
        action="store_true",
        help="cuDNN's where there is one; without dropout of the probabilities",
    )


class Parser(argparse.ArgumentParser):
    """Raises what a user did wrong, to be told in a line as with every verb."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; `{self.prog} --help` tells the options.")


def parser() -> argparse.ArgumentParser:
    """The options; argparse, so that it runs where tyro is not installed."""
    top = Parser(
        prog="bert-jax benchmark",
        description="Measure training, inference, input or preparation on this machine",
    )
    whats = top.add_subparsers(dest="what", required=True)
    commands: dict[str, argparse.ArgumentParser] = {}
    for name, (_, text) in WHAT.items():
        commands[name] = command = whats.add_parser(name, help=text, description=text)
        command.add_argument("--sequence-length", type=positive, default=128)
        command.add_argument("--json", type=Path, help="write the figures here too")
    add_model(commands["train"])
    add_training(commands["train"])
    add_model(commands["inference"])
    source, prepare = commands["input"], commands["prepare"]
    source.add_argument("--batch-size", type=positive, default=256)
    source.add_argument("--rows", type=positive, default=500_000)
    source.add_argument("--repeats", type=positive, default=5)
    prepare.add_argument("--input", nargs="+", default=[], help="text files")
    prepare.add_argument("--vocab-size", type=positive, default=8192)
    return top


def print_table(asked: Figures, figures: Figures) -> None:
    """What was asked and found; PyTorch's figures in columns beside ours."""
    theirs: dict[str, Figures] = figures.get("torch", {})
    rest = asked | {k: v for k, v in figures.items() if k not in ("torch", "left_out")}
    beside = dict.fromkeys(name for column in theirs.values() for name in column)
    for line in table({"": {k: v for k, v in rest.items() if k not in beside}}):
        print(line)
    if not theirs:
        return
    shared = {name: rest[name] for name in rest if name in beside}
    columns = {name: dict(column) for name, column in theirs.items()}
    for column in columns.values():
        del column["ratios"]
    print()
    for line in table({"ours": shared} | columns):
        print(line)
    print()
    for name, column in theirs.items():
        low, high = show(column["ratio_lowest"]), show(column["ratio_highest"])
        print(
            f"ours / {name}: {show(column['ratio'])} times the tokens/s "
            f"({low} to {high} in {len(column['ratios'])} alternations)"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write JSON where asked."""
    options = parser().parse_args(arguments)
    asked = {k: v for k, v in vars(options).items() if k != "json"}
    if asked.get("compare"):
        leave_memory()
    module = importlib.import_module(f"bert_jax.benchmark.{WHAT[options.what][0]}")
    figures: Figures = getattr(module, f"benchmark_{options.what}")(options)
    figures |= {"peak_memory_mib": peak_memory_mib(), "machine": platform.machine()}
    print_table(asked, figures)
    if options.json:
        options.json.write_text(json.dumps(asked | figures, indent=2, default=str))
    return 0
