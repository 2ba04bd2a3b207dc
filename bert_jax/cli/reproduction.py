"""`bert-jax reproduce`."""

import contextlib
import dataclasses
import os
import sys
from typing import Annotated, Literal

import tyro

from bert_jax.terminal.messages import UsageError, say


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """Run an experiment of the paper: pretraining-tasks, masking, objectives, size or
    pooling. The same command again goes on where it was stopped."""

    experiment: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Name of the experiment."""
    output: str
    """Directory of everything that the experiment makes; results.md is its table."""
    budget: Literal["toy", "small", "base"] = "toy"
    """What is spent on each pretraining run: toy for two cores, small for one GPU,
    base for a large host."""
    input: tuple[str, ...] = ()
    """Text files to pretrain on, as `bert-jax prepare` takes; with the budget toy,
    the documentation of the installed packages if there are none."""
    tokenizer: str = ""
    """Directory of a tokenizer; empty: a WordPiece vocabulary learned from the text."""
    tasks: tuple[str, ...] = ("libraries",)
    """Tasks to score on: libraries (which package is a paragraph of documentation
    from?), and NAME=TRAIN,TEST: two .csv, .tsv or .jsonl files with text (or text_a and
    text_b) and label, or two files of sentences to tag."""
    seeds: int = 0
    """Number of seeds; 0: that of the budget."""
    flops: float = 0.0
    """FLOPs of each pretraining run; 0: those of the budget."""
    microbatches: int = 1
    """Parts in which a batch is processed, to save memory."""
    yes: bool = False
    """Start without asking."""


def reproduce(options: ReproduceOptions) -> None:
    from bert_jax.distributed import environment

    if environment.has_several_processes(os.environ):
        raise UsageError(
            "reproduce runs in one process, with all of its devices; start one, "
            "without the variables of a run of several."
        )
    environment.configure_jax(os.environ)
    from bert_jax.experiments.plots import require_matplotlib
    from bert_jax.experiments.reproduce import budget_of, make_plan, reproduce

    require_matplotlib()
    plan = make_plan(
        options.experiment,
        budget_of(options.budget, options.flops, options.seeds, options.microbatches),
        options.output,
        options.input,
        options.tokenizer,
        options.tasks,
    )
    for line in plan.lines():
        say(line)
    if not options.yes and not sys.stdin.isatty():
        raise UsageError("Nothing was started; pass --yes to start without asking.")
    if not (options.yes or is_confirmed()):
        say("Nothing was started.")
        return
    for path in reproduce(plan):
        say(path)


def is_confirmed() -> bool:
    """Ask on the terminal whether to start; the end of input is a no."""
    with contextlib.suppress(EOFError):
        return input("Start? [y/N] ").strip().lower() in ("y", "yes")
    return False
