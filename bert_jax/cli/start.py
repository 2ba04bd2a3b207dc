"""Start a run: what `bert-jax pretrain` and `finetune` share."""

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from typing import Annotated, TypeVar

import tyro

from bert_jax.cli.command import named_options, option_value
from bert_jax.config import FinetuneConfig, RunConfig
from bert_jax.distributed import environment
from bert_jax.storage.files import finite_json
from bert_jax.terminal.messages import UsageError

ConfigT = TypeVar("ConfigT", bound=RunConfig)
_RATE = "--optimizer.peak-learning-rate"
_WARMUP = ("--optimizer.warmup-share", "--optimizer.warmup-steps")
ModelArgument = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
"""The model of a verb: its first argument, or --model MODEL."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartOptions:
    """Options for starting a run, which are not part of its configuration."""

    workdir: str = ""
    """Directory of the run: checkpoints, metrics, tokenizer."""
    extend: bool = False
    """Continue the run in workdir for more steps or fewer, or at another learning rate
    or schedule of it, than it had so far; it may end at once, at the step it is at."""
    deterministic: bool = False
    """Make runs on GPUs bit-reproducible; slower."""
    initialization_timeout: int = 300
    """Seconds that several processes wait for each other at the start, and then for
    their devices."""
    dry_run: bool = False
    """Print what the run would take here (memory, the seconds of measured steps and the
    hours of all) and what it would learn from; start no run, and write no workdir."""
    verbose: bool = False
    """With dry_run: print also each tensor and the compiler's figures, and before a
    pretraining the first rows with their masks."""
    print_config: bool = False
    """Print the configuration as JSON, and train nothing."""


def with_named_rates(config: ConfigT, arguments: Sequence[str]) -> ConfigT:
    """Return the defaults of a run, whose named rate and share of warm-up stay.

    The size of the model would change the rate, and a number of steps, which the
    configuration may have, would hide the share.
    """
    if isinstance(config, FinetuneConfig) and _RATE in named_options(arguments):
        config = config.changed(rate_by_size=False)
    values = [option_value(arguments, name) for name in _WARMUP]
    share, steps = (value if value and value.strip("0.") else None for value in values)
    if share is None:
        return config
    if steps is not None:
        raise UsageError(
            f"--optimizer.warmup-share={share} has no effect with "
            f"--optimizer.warmup-steps={steps}; give one of them."
        )
    return config.changed(optimizer={"warmup_steps": 0})


def start(options: StartOptions) -> bool:
    """Set JAX up, and connect the processes; return whether this is the primary one.

    Raise UsageError if there is no workdir, or an option is of a dry run.
    """
    if options.verbose:
        raise UsageError("--verbose needs --dry-run.")
    if not options.workdir:
        raise UsageError("--workdir is missing; name a directory for the run.")
    environment.configure_jax(os.environ, options.deterministic)
    from bert_jax.distributed import startup

    return startup.start(os.environ, options.initialization_timeout)


def require_standard_output(output: object = "", remedy: str = "open it") -> None:
    """Raise UsageError if answers go to no output, and standard output is closed."""
    if sys.stdout is None and output in ("", "-", ()):  # Python drops what is printed
        raise UsageError(f"standard output is closed; {remedy}.")


def config_json(config: RunConfig) -> str:
    from bert_jax.config.serialization import to_dict

    return json.dumps(to_dict(config), indent=2)


def scores_json(scores: dict[str, float]) -> str:
    """Return scores as JSON, each once, rounded to four digits.

    Thresholds are not rounded: each equals the value of an example. Errors, which have
    the units of the data, are rounded to six significant digits. JSON has no number
    that is not finite: such a score is null.
    """
    from bert_jax.tasks.predictions import without_repeats

    rounded = {
        name: value
        if name.endswith("_threshold")
        else float(f"{value:.6g}")
        if "squared_error" in name
        else round(value, 4)
        for name, value in without_repeats(scores).items()
    }
    return json.dumps(finite_json(rounded))
