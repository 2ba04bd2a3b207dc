"""`bert-jax finetune`."""

import dataclasses
import json
import os
import shlex
from collections.abc import Sequence
from typing import Annotated

import tyro

from bert_jax.cli.command import named_options, parse, without_resolved
from bert_jax.cli.readers import require_used
from bert_jax.cli.start import (
    StartOptions,
    config_json,
    scores_json,
    start,
    with_named_rates,
)
from bert_jax.config import ExamplesConfig, FinetuneConfig
from bert_jax.config.files import TASKS, finetuning_config
from bert_jax.distributed import environment
from bert_jax.storage.files import finite_json
from bert_jax.terminal.messages import UsageError, say

default_config = finetuning_config
_SWEPT = ("--optimizer.peak-learning-rate", "--batch-size", "--num-epochs")
_COUNTING = {"--batch-size", "--data.train", "--data.path"}
"""Options with which the same number of epochs has another number of steps."""
_TEMPERATURE = "--data.sentence-pairs.temperature"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneOptions(StartOptions):
    """Fine-tune a model: `bert-jax finetune TASK|CONFIG --init-from MODEL …`."""

    seeds: int = 1
    """Run with this many seeds, and keep the best run."""
    sweep: bool = False
    """Run with each learning rate, batch size and number of epochs of the paper's grid
    (A.3), and keep the best run."""
    config: Annotated[FinetuneConfig, tyro.conf.arg(name="")] = FinetuneConfig()


def read_finetune(
    options_class: type[FinetuneOptions], arguments: Sequence[str], verb: str
) -> FinetuneOptions:
    """Parse with the defaults of the task or configuration file that comes first."""
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(
            "finetune needs a task or a configuration first, as in `bert-jax finetune "
            f"text-classification`; tasks are {', '.join(TASKS)}, and `bert-jax "
            "configs` lists configurations."
        )
    name, *arguments = arguments
    config = with_named_rates(default_config(name), arguments)
    is_record = bool(config.data.fingerprint)  # it has both steps and epochs
    if name.endswith(".json"):
        config = without_resolved(config, arguments)
    names = named_options(arguments)
    by_epochs = {"--num-epochs", *["--sweep"] * is_record}
    if names & by_epochs and "--num-steps" not in names:
        config = config.changed(num_steps=0)
    default = options_class(config=config)
    options = parse(options_class, arguments, f"{verb} {name}", default)
    if not name.endswith((".py", ".json")) and options.config.task != config.task:
        raise UsageError(
            f"{name} is a {config.task}, and --task={options.config.task} another "
            "task; name one of them, as the first word."
        )
    require_used(options, arguments, verb, options.config.task)
    _require_own_columns(options.config.data)
    if not options.print_config:
        _say_effects(options, names, name if is_record else "")
    return options


def _require_own_columns(data: ExamplesConfig) -> None:
    """Raise UsageError if columns are named for GLUE's files, which have their own."""
    columns = (data.text_columns, data.label_column, data.delimiter)
    if data.glue and columns != ((), "label", ""):
        raise UsageError(
            f"{data.glue} is read from GLUE's own files, whose columns are known; "
            "leave --text-column, --label-column and --delimiter out, or name "
            "text-classification for a table of your own."
        )


def _say_effects(options: FinetuneOptions, names: set[str], record: str) -> None:
    """Print which of the named options have no effect, or not the usual one.

    `record` is the config.json of the run whose settings are the defaults; "": none.
    """
    config, data = options.config, options.config.data
    scored, objective = data.validation or data.path, data.sentence_pairs.objective
    makes_vectors = config.task == "sentence-pairs" and objective != "rank"
    for option, is_idle, reason in (
        ("--data.validation-fraction", scored, f"{scored} is scored on"),
        ("--data.label-separator", not data.multi_label, "no --data.multi-label"),
        ("--num-epochs", config.num_steps, "--num-steps is given"),
        ("--reinitialise-layers", config.from_scratch, "--from-scratch draws all"),
        (_TEMPERATURE, objective != "contrastive", f"the objective is {objective}"),
        ("--model.pooling", makes_vectors, "see --data.sentence-pairs.pooling"),
    ):
        if is_idle and option in names:
            say(f"{option} has no effect: {reason}.")
    if options.sweep and (given := [o for o in _SWEPT if o in names]):
        say(f"--sweep tries values of its own in place of {', '.join(given)}.")
    is_kept = config.num_steps and "--num-steps" not in names
    if record and is_kept and names & _COUNTING:
        say(
            f"num_steps={config.num_steps} is that of {record}; --num-epochs counts "
            "the steps of other examples or another batch size."
        )


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
    if options.dry_run:
        return _dry_run(options)
    is_primary = start(options)
    if several:
        from bert_jax.runs.sweeps import finetune_runs
        from bert_jax.training.score_table import runs_json, runs_lines

        runs = finetune_runs(config, workdir, options.seeds, options.sweep)
        if is_primary:
            say("\n".join(runs_lines(runs)))
            print(json.dumps(finite_json(runs_json(runs))))
    else:
        from bert_jax.runs import finetuning
        from bert_jax.training.score_table import score_lines

        scores = finetuning.finetune(config, workdir, extend=options.extend)
        if is_primary:
            say("\n".join(score_lines(scores)))
            print(scores_json(scores))
    if is_primary:
        say(next_steps(workdir))


def _dry_run(options: FinetuneOptions) -> None:
    environment.configure_jax(os.environ)
    from bert_jax.apps.dry_run.finetuning import dry_run

    for line in dry_run(
        options.config,
        options.verbose,
        workdir=options.workdir,
        extend=options.extend,
        seeds=options.seeds,
        sweep=options.sweep,
    ):
        say(line)


def next_steps(workdir: str) -> str:
    """Return what to type after a fine-tuning, a line each."""
    from bert_jax.runs.finetuning import export_form

    place, form = shlex.quote(workdir), export_form(workdir)
    return f"""\
Next:
  bert-jax predict {place} --input FILE --output FILE.csv
  bert-jax evaluate {place} --input FILE --output report.html
  bert-jax convert export --to {form} {place} --output DIRECTORY
  in Python: model = bert_jax.load({workdir!r})"""
