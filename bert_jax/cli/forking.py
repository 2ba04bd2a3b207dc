"""`bert-jax fork`."""

import contextlib
import dataclasses
import shlex
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from bert_jax.cli.command import (
    option_value,
    parse,
    say_unread_masking,
    with_ruled_predictions,
)
from bert_jax.cli.readers import require_used
from bert_jax.cli.start import with_named_rates
from bert_jax.config import FinetuneConfig, PretrainConfig
from bert_jax.terminal.messages import UsageError, say


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForkOptions:
    """Options of a fork that are not part of its configuration."""

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Workdir of a run of `bert-jax pretrain` or `finetune`."""
    at: int
    """Step of the checkpoint at which the new run begins."""
    output: str
    """Directory of the new run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingFork(ForkOptions):
    """Begin a new run as another was at a checkpoint, with the same rows and keys in
    each step: `bert-jax fork RUN --at STEP --output NEW …`. Other options replace those
    of the run.
    """

    config: Annotated[PretrainConfig, tyro.conf.arg(name="")] = PretrainConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningFork(ForkOptions):
    """Begin a new run as a fine-tuning run was at a checkpoint, with the same rows and
    keys in each step. Other options replace those of the run.
    """

    config: Annotated[FinetuneConfig, tyro.conf.arg(name="")] = FinetuneConfig()


def read_fork(
    options_class: type[PretrainingFork], arguments: Sequence[str], verb: str
) -> PretrainingFork | FinetuningFork:
    """Parse with the configuration of the run as defaults, which RUN and --at name."""
    step, output = None, option_value(arguments, "--output")
    with contextlib.suppress(ValueError):
        step = int(option_value(arguments, "--at") or "")
    if step is None or output is None or arguments[0].startswith("-"):
        parse(options_class, arguments, verb)  # prints the help, or raises
        raise UsageError(_USAGE)
    if [word.partition("=")[0] for word in arguments].count("--at") > 1:
        raise UsageError(_USAGE)
    from bert_jax.runs.fork import read_run_config

    source = arguments[0]
    config = with_named_rates(read_run_config(source, step), arguments)
    config = with_ruled_predictions(config, arguments)
    kind: Any = FinetuningFork if isinstance(config, FinetuneConfig) else options_class
    default = kind(source=source, at=step, output=output, config=config)
    options: PretrainingFork | FinetuningFork = parse(kind, arguments, verb, default)
    if isinstance(options, FinetuningFork):
        require_used(options, arguments, verb, default.config.task, default)
    else:
        say_unread_masking(options.config, arguments)
    if options.source != source:
        raise UsageError(_USAGE)
    return options


_USAGE = (
    "fork takes the run first, and each option once, as in `bert-jax fork runs/a --at "
    "1000 --output runs/b`."
)


def fork(options: PretrainingFork | FinetuningFork) -> None:
    from bert_jax.runs.fork import fork
    from bert_jax.training.resume import fresh_scores_line

    changed = fork(options.source, options.at, options.output, options.config)
    say(f"{options.output}: {options.source} as it was at step {options.at}.")
    for change in changed:
        say(f"{change['field']} was {change['before']!r} and is {change['now']!r}.")
    if line := fresh_scores_line(changed, options.at):
        say(line)
    verb = "finetune" if isinstance(options, FinetuningFork) else "pretrain"
    directory = shlex.quote(options.output)
    file = shlex.quote(f"{options.output.rstrip('/')}/config.json")
    say(f"To train it on: bert-jax {verb} {file} --workdir {directory}")
