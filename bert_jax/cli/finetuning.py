"""`bert-jax finetune`, `evaluate` and `predict`."""

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from bert_jax.cli.command import DEFAULT_START, StartOptions, load_config, parse_options
from bert_jax.config import ExamplesConfig, FinetuneConfig
from bert_jax.config.finetuning import GlueName, TaskName
from bert_jax.distributed import environment
from bert_jax.terminal.messages import UsageError, say

TASKS: tuple[str, ...] = get_args(TaskName)
GLUE: tuple[str, ...] = tuple(name for name in get_args(GlueName) if name)


def default_config(task: str) -> FinetuneConfig:
    """The paper's way to learn a task, or one of GLUE's.

    Raises:
        UsageError: there is no such task.
    """
    if task in GLUE:
        kind: Any = "text-regression" if task == "stsb" else "text-classification"
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


def named_config(arguments: Sequence[str]) -> FinetuneConfig:
    """What the first argument names: a task, or a configuration file.

    Raises:
        UsageError: there is none, or it names nothing.
    """
    if not arguments or arguments[0].startswith("-") and "--help" not in arguments:
        raise UsageError(
            "finetune needs a task or a configuration file first, as in `bert-jax "
            f"finetune text-classification`; tasks are {', '.join(TASKS + GLUE)}."
        )
    name = arguments[0]
    if name.startswith("-"):
        return FinetuneConfig()
    is_file = name.endswith(".py")
    return load_config(name, FinetuneConfig) if is_file else default_config(name)


def finetune(arguments: Sequence[str]) -> int:
    """Fine-tune a model, or go on with a run."""
    import tyro

    default = named_config(arguments)
    if not arguments[0].startswith("-"):
        arguments = arguments[1:]

    def command(
        config: Annotated[FinetuneConfig, tyro.conf.arg(name="")] = default,
        workdir: str = "",
        start: Annotated[StartOptions, tyro.conf.arg(name="")] = DEFAULT_START,
        seeds: int = 1,
        sweep: bool = False,
        print_config: bool = False,
    ) -> tuple[FinetuneConfig, str, StartOptions, int, bool, bool]:
        """Fine-tune a model: `bert-jax finetune TASK|CONFIG.py --init-from MODEL …`.

        Args:
            config: the run.
            workdir: directory of the run: checkpoints, metrics, tokenizer.
            start: how it is started.
            seeds: do it with so many seeds, and keep the best.
            sweep: do it with each learning rate, batch size and number of epochs of
                the paper's grid (A.3), and keep the best.
            print_config: print the configuration as JSON, and train nothing.
        """
        return config, workdir, start, seeds, sweep, print_config

    return _finetune(*parse_options(command, "finetune TASK", arguments))


def _finetune(
    config: FinetuneConfig,
    workdir: str,
    start: StartOptions,
    seeds: int,
    sweep: bool,
    print_config: bool,
) -> int:
    if print_config:
        from bert_jax.config.serialization import to_dict

        print(json.dumps(to_dict(config), indent=2))
        return 0
    several = sweep or seeds > 1
    _check_start(workdir, seeds, start.extend and several)
    environment.prepare(os.environ, start.deterministic)
    from bert_jax.distributed import startup

    is_primary = startup.start(os.environ, start.initialization_timeout)
    if several:
        from rich.console import Console

        from bert_jax.runs.sweeps import finetune_runs, runs_table

        runs = finetune_runs(config, workdir, seeds, sweep)
        Console(highlight=False, quiet=not is_primary).print(runs_table(runs))
    else:
        from bert_jax.runs.finetuning import finetune

        scores = finetune(config, workdir, extend=start.extend)
        if is_primary:
            print(scores_line(scores))
    if is_primary:
        say(f"To use it: bert-jax predict --checkpoint {workdir} --input FILE")
        say(f'In Python: bert_jax.load("{workdir}")')
    return 0


def _check_start(workdir: str, seeds: int, extend_several: bool) -> None:
    if not workdir:
        raise UsageError("--workdir is missing; name a directory for the run.")
    if seeds < 1:
        raise UsageError(f"--seeds={seeds} must be at least 1.")
    if extend_several:
        raise UsageError(
            "--extend goes on with one run, and --seeds and --sweep begin several; "
            "drop one of them."
        )


def scores_line(scores: dict[str, float]) -> str:
    """Scores as JSON to four digits; thresholds whole, for an example lies on each."""
    return json.dumps(
        {
            name: value if name.endswith("_threshold") else round(value, 4)
            for name, value in scores.items()
        }
    )


def evaluate(arguments: Sequence[str]) -> int:
    """Score a fine-tuned model on a file."""
    default = _examples_of(arguments)

    def command(
        checkpoint: str,
        data: ExamplesConfig = default,
        output: str = "",
        part: Literal["validation", "test"] = "validation",
    ) -> tuple[str, ExamplesConfig, str, str]:
        """Score a fine-tuned model, and write its predictions.

        Args:
            checkpoint: workdir of `bert-jax finetune`, or one of its checkpoints.
            data: the file to score, and how it is read; else as in training.
            output: directory for the task's official prediction files.
            part: which part of data.path to score.
        """
        return checkpoint, data, output, part

    options = parse_options(command, "evaluate", arguments)
    from bert_jax.inference.evaluation import evaluate as run

    scores, files = run(*options)
    if not scores:
        print("The file has no labels; there is nothing to score.", file=sys.stderr)
    print(scores_line(scores))
    for file in files:
        say(file)
    return 0


def _examples_of(arguments: Sequence[str]) -> ExamplesConfig:
    """How the checkpoint that is named had its examples; a file replaces its path."""
    named = _value(arguments, "--checkpoint")
    if named is None:
        return ExamplesConfig()
    from bert_jax.inference.evaluation import examples_config_of

    found = examples_config_of(named)
    if _value(arguments, "--data.validation") is not None:
        found = dataclasses.replace(found, path="", glue="", train="")
    if _value(arguments, "--data.path") is not None:
        found = dataclasses.replace(found, train="", validation="")
    return found


def _value(arguments: Sequence[str], option: str) -> str | None:
    """What follows an option, or stands behind its =; None where it is not there."""
    for i, argument in enumerate(arguments):
        if argument.startswith(f"{option}="):
            return argument.removeprefix(f"{option}=")
        if argument == option and i + 1 < len(arguments):
            return arguments[i + 1]
    return None


def predict(arguments: Sequence[str]) -> int:
    """A fine-tuned model's predictions for a file or standard input."""
    default = _examples_of(arguments)

    def command(
        checkpoint: str,
        input: str = "-",
        data: ExamplesConfig = default,
        batch_size: int = 32,
    ) -> tuple[str, str, ExamplesConfig, int]:
        """Predictions as JSON, one a line, in the order of the input.

        Args:
            checkpoint: workdir of `bert-jax finetune`, or one of its checkpoints.
            input: .csv, .tsv or .jsonl file, or any other with a text a line; -: lines
                of JSON or of text from standard input.
            data: how the input is read; else as in training.
            batch_size: examples that are computed at once.
        """
        return checkpoint, input, data, batch_size

    options = parse_options(command, "predict", arguments)
    from bert_jax.inference.jsonl import prediction_lines

    for line in prediction_lines(*options):
        print(line)
    return 0


def features(arguments: Sequence[str]) -> int:
    """Hidden states of the tokens of a file's lines."""

    def command(
        model: str,
        input: str,
        output: str,
        layers: tuple[int, ...] = (-1,),
        combine: Literal["concatenate", "sum"] = "concatenate",
        batch_size: int = 32,
    ) -> tuple[str, str, str, tuple[int, ...], str, int]:
        """Hidden states of each token, with its place in the text.

        Args:
            model: workdir, checkpoint, Hugging Face directory or
                hf:OWNER/NAME@REVISION.
            input: file with a text a line; -: standard input.
            output: .npz or .jsonl file to write.
            layers: which: 0 the embeddings, 1 the first, -1 the last layer.
            combine: several layers side by side, or their sum.
            batch_size: texts that are computed at once.
        """
        return model, input, output, layers, combine, batch_size

    options = parse_options(command, "features", arguments)
    from bert_jax.inference.jsonl import write_feature_file

    say(write_feature_file(*options))
    return 0
