"""`bert-jax pretrain`, and what it would do."""

import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Annotated

from bert_jax.cli.command import DEFAULT_START, StartOptions, load_config, parse_options
from bert_jax.config import PretrainConfig
from bert_jax.distributed import environment
from bert_jax.terminal.messages import UsageError, say


def pretrain(arguments: Sequence[str]) -> int:
    """Pretrain a model, or go on with a run."""
    import tyro

    default = PretrainConfig()
    if arguments and not arguments[0].startswith("-"):
        default = load_config(arguments[0], PretrainConfig)
        arguments = arguments[1:]

    def command(
        config: Annotated[PretrainConfig, tyro.conf.arg(name="")] = default,
        workdir: str = "",
        start: Annotated[StartOptions, tyro.conf.arg(name="")] = DEFAULT_START,
        dry_run: bool = False,
        devices: int = 0,
        memory_gib: float = 0.0,
        print_config: bool = False,
    ) -> Callable[[], int]:
        """Pretrain a model; `bert-jax pretrain CONFIG.py …` takes its defaults there.

        Args:
            config: the run.
            workdir: directory of the run: checkpoints, metrics, tokenizer.
            start: how it is started.
            dry_run: print what would be trained on what, and train nothing.
            devices: with dry_run: compile the step for so many devices, which need not
                be there, and print the memory that each takes.
            memory_gib: with devices: what each has; where it is too little, what to
                turn on.
            print_config: print the configuration as JSON, and train nothing.
        """
        if print_config:
            return lambda: _print_config(config)
        if dry_run or devices or memory_gib:
            plan = _dry_run if dry_run else _refuse_without_dry_run
            return lambda: plan(config, workdir, devices, memory_gib, start.extend)
        return lambda: _pretrain(config, workdir, start)

    return parse_options(command, "pretrain", arguments)()


def _print_config(config: PretrainConfig) -> int:
    from bert_jax.config.serialization import to_dict

    print(json.dumps(to_dict(config), indent=2))
    return 0


def _refuse_without_dry_run(*_: object) -> int:
    raise UsageError("--devices and --memory-gib need --dry-run.")


def _dry_run(
    config: PretrainConfig,
    workdir: str,
    devices: int,
    memory_gib: float,
    extend: bool,
) -> int:
    if memory_gib and not devices:
        raise UsageError("--memory-gib needs --devices, the number of them.")
    if devices < 0 or memory_gib < 0 or not math.isfinite(memory_gib):
        raise UsageError(
            f"--devices={devices} and --memory-gib={memory_gib} must be greater than 0."
        )
    if devices:
        environment.set_num_cpu_devices(os.environ, devices)
    from bert_jax.runs import pretraining

    for line in pretraining.dry_run(config, workdir, devices, memory_gib, extend):
        say(line)
    return 0


def _pretrain(config: PretrainConfig, workdir: str, start: StartOptions) -> int:
    if not workdir:
        raise UsageError("--workdir is missing; name a directory for the run.")
    environment.configure_jax(os.environ, start.deterministic)
    from bert_jax.distributed import startup
    from bert_jax.runs import pretraining

    is_primary = startup.start(os.environ, start.initialization_timeout)
    scores = pretraining.pretrain(config, workdir, start.extend)
    if is_primary:
        print(json.dumps({name: round(value, 4) for name, value in scores.items()}))
        say(f'In Python: bert_jax.load("{workdir}")')
    return 0
