"""Run a benchmark, and print its figures, all measured in that call.

`python -m bert_jax.benchmark` parses by argparse, and runs where tyro is not installed.
"""

import argparse
import dataclasses
import importlib
import json
import os
import platform
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from bert_jax.apps.benchmark.figures import Figures, peak_memory_mib, show, table
from bert_jax.apps.benchmark.options import (
    BenchmarkOptions,
    CompileOptions,
    InferenceOptions,
    InputOptions,
    PrepareOptions,
    TrainOptions,
)
from bert_jax.config.checks import field_descriptions
from bert_jax.distributed.environment import configure_topology
from bert_jax.terminal.messages import UsageError

WHAT: dict[str, tuple[type[BenchmarkOptions], str]] = {
    "train": (TrainOptions, "steps"),
    "compile": (CompileOptions, "compilation"),
    "inference": (InferenceOptions, "steps"),
    "input": (InputOptions, "reading"),
    "prepare": (PrepareOptions, "reading"),
}
"""By name: the options, and the module that defines `benchmark_NAME`."""


class Parser(argparse.ArgumentParser):
    """Raises a user's mistake, which is then printed in one line as for every verb."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; `{self.prog} --help` lists the options.")


def parse(arguments: Sequence[str] | None) -> BenchmarkOptions:
    """Build the options of the benchmark that the arguments name.

    Raise UsageError for an argument that cannot be read, ValueError for a wrong value.
    """
    parser = Parser(prog="python -m bert_jax.benchmark")
    commands = parser.add_subparsers(dest="what", required=True)
    for name, (options_class, _) in WHAT.items():
        text = options_class.__doc__
        command = commands.add_parser(name, help=text, description=text)
        add_fields(command, options_class)
    values = parsed_values(parser, arguments)
    return WHAT[values.pop("what")][0](**values)


def parsed_values(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> dict[str, Any]:
    """Return the values of the options of `add_fields`; several are a tuple."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(parser.parse_args(arguments)).items()
    }


def add_fields(parser: argparse.ArgumentParser, options_class: type) -> None:
    """Add an option for each field of a dataclass, with its docstring as help."""
    descriptions = field_descriptions(options_class)
    hints = typing.get_type_hints(options_class)
    for field in dataclasses.fields(options_class):
        hint = hints[field.name]
        if type(None) in typing.get_args(hint):
            hint = typing.get_args(hint)[0]
        required = field.default is dataclasses.MISSING
        keywords: dict[str, Any] = {"type": hint}
        if hint is bool:
            keywords = {"action": argparse.BooleanOptionalAction}
        elif typing.get_origin(hint) is typing.Literal:
            keywords = {"choices": typing.get_args(hint)}
        elif typing.get_origin(hint) is tuple:
            keywords = {"type": str, "nargs": "+"}
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            default=None if required else field.default,
            required=required,
            help=descriptions[field.name]
            + (" (required)" if required else " (default: %(default)s)"),
            **keywords,
        )


def run(options: BenchmarkOptions) -> int:
    """Measure, print a table, and write JSON if the options name a file.

    Return the exit code: 1 if a part of the figures is missing, because it failed.
    """
    what, module_name = next(
        (name, module) for name, (kind, module) in WHAT.items() if kind is type(options)
    )
    settings: Figures = {"what": what} | vars(options)
    json_path = settings.pop("json")
    if json_path and not Path(json_path).absolute().parent.is_dir():
        raise UsageError(f"json={json_path} is in no directory; make that first.")
    if settings.get("compare"):
        # PyTorch needs memory of the GPU too.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if what == "compile":
        configure_topology(os.environ)
    module = importlib.import_module(f"bert_jax.apps.benchmark.{module_name}")
    figures: Figures = getattr(module, f"benchmark_{what}")(options)
    figures |= {"peak_memory_mib": peak_memory_mib(), "machine": platform.machine()}
    print_table(settings, figures)
    write_figures(settings | figures, json_path)
    return 1 if figures.get("failed") else 0


def write_figures(figures: Figures, path: str) -> None:
    """Write figures as JSON; none if `path` is empty."""
    if path:
        Path(path).write_text(json.dumps(figures, indent=2, default=str))


def print_table(settings: Figures, figures: Figures) -> None:
    """Print the settings and the figures, PyTorch's figures in columns beside ours."""
    torch_figures: dict[str, Figures] = figures.get("torch", {})
    compared = {name for column in torch_figures.values() for name in column}
    columns: dict[str, Figures] = {"ours": {}}
    for name, value in (settings | figures).items():
        if name in compared:
            columns["ours"][name] = value
        elif name in ("torch", "left_out"):
            continue
        elif isinstance(value, dict):
            print(name)
            for part, figure in value.items():
                print(f"  {part:32} {show(figure)}")
        else:
            print(f"{name:34} {show(value)}")
    if not torch_figures:
        return
    for name, column in torch_figures.items():
        columns[name] = {k: v for k, v in column.items() if k != "ratios"}
    print("", *table(columns), "", sep="\n")
    for name, column in torch_figures.items():
        low, high = show(column["ratio_lowest"]), show(column["ratio_highest"])
        print(
            f"ours / {name}: {show(column['ratio'])} times the tokens/s "
            f"({low} to {high} in {len(column['ratios'])} alternations)"
        )
