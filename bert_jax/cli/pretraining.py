"""`bert-jax pretrain`, and its dry run."""

import dataclasses
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated

import tyro

from bert_jax.cli.command import (
    load_config,
    option_value,
    parse,
    say_unread_masking,
    without_resolved,
)
from bert_jax.cli.start import (
    StartOptions,
    config_json,
    scores_json,
    start,
    with_named_rates,
)
from bert_jax.config import PretrainConfig
from bert_jax.config.checks import RESOLVED
from bert_jax.config.model import SHAPE_FIELDS
from bert_jax.distributed import environment
from bert_jax.terminal.messages import UsageError, say


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainOptions(StartOptions):
    """Pretrain a model; `bert-jax pretrain CONFIG …` takes defaults from a file, or
    from one that `bert-jax configs` lists.
    """

    hours: float | None = None
    """Take as many steps as these hours hold here, by the speed of the first ones, in
    place of num_steps; config.json records the number, and a resumed run keeps it."""
    devices: int = 0
    """With dry_run: compile the step for this many devices, which need not be present,
    and print the memory that each needs."""
    topology: str = ""
    """With dry_run: compile the step by the compiler of these accelerators, which need
    not be present: v5e:4x4, v5p:2x2x2, v6e:4x4, h200:8, a100:8, …"""
    memory_gib: float = 0.0
    """With devices or topology: the memory of each; if it is too little, print what
    would help."""
    config: Annotated[PretrainConfig, tyro.conf.arg(name="")] = PretrainConfig()
    named_shape: Mapping[str, str] | None = dataclasses.field(
        default=None, metadata=RESOLVED
    )
    """The options of the model's shape, if the run starts from a model."""


def default_config(name: str) -> PretrainConfig:
    return load_config(name, PretrainConfig)


def read_pretrain(
    options_class: type[PretrainOptions], arguments: Sequence[str], verb: str
) -> PretrainOptions:
    """Parse with the defaults of the configuration file that may come first."""
    names = ("--hours", "--num-steps")
    if all(option_value(arguments, name) is not None for name in names):
        raise UsageError("--hours and --num-steps both set the length; give one.")
    config = PretrainConfig()
    if arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        config = default_config(name)
        if name.endswith(".json"):
            config = without_resolved(config, arguments)
    source = option_value(arguments, "--init-from")
    starts_from = config.init_from if source is None else source
    named_shape = None
    if starts_from and "--print-config" not in arguments:
        arguments, named_shape = split_shape(arguments)
    config = with_named_rates(config, arguments)
    default = options_class(config=config, named_shape=named_shape)
    options = parse(options_class, arguments, verb, default)
    if not options.print_config:
        say_unread_masking(options.config, arguments)
    return options


def split_shape(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments without options of the model's shape, and these by name.

    They are compared with the model that the run starts from, which has their values.
    """
    others, named, words = [], {}, iter(arguments)
    for word in words:
        option, sign, value = word.partition("=")
        name = option.removeprefix("--model.").replace("-", "_")
        if option.startswith("--model.") and name in SHAPE_FIELDS:
            named[name] = value if sign else next(words, "")
        else:
            others.append(word)
    return others, named


def pretrain(options: PretrainOptions) -> None:
    if options.print_config and options.hours is not None:
        raise UsageError("--hours is measured when a run begins; drop --print-config.")
    if options.print_config:
        print(config_json(options.config))
        return
    if options.dry_run:
        return _dry_run(options)
    if options.devices or options.memory_gib or options.topology:
        raise UsageError("--devices, --topology and --memory-gib need --dry-run.")
    if options.extend and options.hours is not None:
        raise UsageError("--hours is of a run's start; --extend needs --num-steps.")
    is_primary = start(options)
    from bert_jax.runs import pretraining
    from bert_jax.tasks.baselines import no_better

    scores = pretraining.pretrain(
        options.config,
        options.workdir,
        options.extend,
        named_shape=options.named_shape,
        hours=options.hours,
    )
    if is_primary:
        print(scores_json(scores))
        for line in no_better(scores):
            say(line)
        say(next_steps(options.workdir, options.config.objective))


def next_steps(workdir: str, objective: str) -> str:
    """Return what to type after a pretraining, a line each."""
    place = shlex.quote(workdir)
    use = (
        f'  bert-jax generate {place} --prompt "TEXT"'
        if objective == "causal_lm"
        else f"  bert-jax finetune text-classification --init-from {place} "
        "--data.train FILE.csv --workdir DIRECTORY\n"
        f'  bert-jax fill "A text with a [MASK]." --model {place}'
    )
    return f"""\
Next:
{use}
  bert-jax inspect {place} --output report.html
  in Python: bert = bert_jax.load({workdir!r})"""


def _dry_run(options: PretrainOptions) -> None:
    devices, memory_gib = options.devices, options.memory_gib
    if options.hours is not None:
        raise UsageError("--hours sets a run's length; --dry-run says how long it is.")
    if options.topology and devices:
        raise UsageError(
            f"--topology={options.topology} has its own devices; drop --devices."
        )
    if memory_gib and not (devices or options.topology):
        raise UsageError(
            "--memory-gib needs --devices, the number of them, or --topology."
        )
    if devices < 0 or memory_gib < 0 or not math.isfinite(memory_gib):
        raise UsageError(
            f"--devices={devices} and --memory-gib={memory_gib} must be greater than 0."
        )
    if devices:
        environment.set_num_cpu_devices(os.environ, devices)
    if options.topology:
        environment.configure_topology(os.environ)
    if not (devices or options.topology):
        environment.configure_jax(os.environ, options.deterministic)
    from bert_jax.apps.dry_run.pretraining import dry_run

    for line in dry_run(
        options.config,
        options.workdir,
        devices,
        memory_gib,
        options.extend,
        options.topology,
        options.named_shape,
        options.verbose,
    ):
        say(line)
