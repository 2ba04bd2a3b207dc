"""`bert-jax finetune`."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, get_args

import tyro

from bert_jax.cli.command import load_config, parse
from bert_jax.cli.start import StartOptions, config_json, scores_json, start
from bert_jax.config import ExamplesConfig, FinetuneConfig
from bert_jax.config.finetuning import GlueName, TaskName
from bert_jax.terminal.messages import UsageError, say

TASKS: tuple[str, ...] = get_args(TaskName)
GLUE: tuple[str, ...] = tuple(name for name in get_args(GlueName) if name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneOptions(StartOptions):
    """Fine-tune a model: `bert-jax finetune TASK|CONFIG.py --init-from MODEL …`."""

    seeds: int = 1
    """Run with this many seeds, and keep the best run."""
    sweep: bool = False
    """Run with each learning rate, batch size and number of epochs of the paper's grid
    (A.3), and keep the best run."""
    config: Annotated[FinetuneConfig, tyro.conf.arg(name="")] = FinetuneConfig()


def default_config(task: str) -> FinetuneConfig:
    """Return the paper's configuration for a task (or GLUE's), or raise UsageError."""
    if task in GLUE:
        kind: TaskName = "text-regression" if task == "stsb" else "text-classification"
        data = ExamplesConfig(glue=task)  # type: ignore[arg-type]
        return FinetuneConfig(task=kind, data=data)
    if task not in TASKS:
        raise UsageError(
            f"{task!r} is neither a task ({', '.join(TASKS)}), one of GLUE's "
            f"({', '.join(GLUE)}), nor a configuration file."
        )
    config = FinetuneConfig(task=task)  # type: ignore[arg-type]
    if task == "question-answering":  # Devlin et al. 2018, §4.2, and its code
        data = dataclasses.replace(config.data, max_length=384)
        return dataclasses.replace(config, data=data, num_epochs=2.0)
    return config


def read_finetune(
    options_class: type[FinetuneOptions], arguments: Sequence[str], verb: str
) -> FinetuneOptions:
    """Parse with the defaults of the task or configuration file that comes first."""
    default = options_class()
    if arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        is_file = name.endswith((".py", ".json"))
        config = load_config(name, FinetuneConfig) if is_file else default_config(name)
        default = options_class(config=config)
    elif "--help" not in arguments:
        raise UsageError(
            "finetune needs a task or a configuration file first, as in `bert-jax "
            f"finetune text-classification`; tasks are {', '.join(TASKS + GLUE)}."
        )
    return parse(options_class, arguments, f"{verb} TASK", default)


def finetune(options: FinetuneOptions) -> None:
    config, workdir = options.config, options.workdir
    if options.print_config:
        print(config_json(config))
        return
    if options.seeds < 1:
        raise UsageError(f"--seeds={options.seeds} must be at least 1.")
    several = options.sweep or options.seeds > 1
    if options.extend and several:
        raise UsageError(
            "--extend continues one run, and --seeds and --sweep start several; drop "
            "one of them."
        )
    is_primary = start(options)
    if several:
        from rich.console import Console

        from bert_jax.runs.sweeps import finetune_runs, runs_table

        runs = finetune_runs(config, workdir, options.seeds, options.sweep)
        Console(highlight=False, quiet=not is_primary).print(runs_table(runs))
    else:
        from bert_jax.runs import finetuning

        scores = finetuning.finetune(config, workdir, extend=options.extend)
        if is_primary:
            print(scores_json(scores))
    if is_primary:
        say(f"To use it: bert-jax predict --checkpoint {workdir} --input FILE")
        say(f'In Python: bert_jax.load("{workdir}")')
