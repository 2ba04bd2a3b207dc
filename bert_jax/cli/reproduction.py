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
    """Run an experiment of the paper. The same command again goes on where it was
    stopped.
    """

    experiment: Annotated[
        Literal[
            "pretraining-tasks", "masking", "objectives", "size", "pooling", "recipe"
        ],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="NAME"),
    ]
    """Name of the experiment."""
    output: str
    """Directory of everything that the experiment makes; results.md is its table."""
    budget: Literal["toy", "small", "base"] = "toy"
    """What is spent on each pretraining run: toy for two cores, small for one GPU,
    base for a pod."""
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
    initialization_timeout: int = 300
    """Seconds that several processes wait for each other at the start, and then for
    their devices."""


def reproduce(options: ReproduceOptions) -> None:
    from bert_jax.distributed import environment

    environment.configure_jax(os.environ)
    from bert_jax.apps.experiments.plots import require_matplotlib
    from bert_jax.apps.experiments.reproduce import (
        ReproductionPlan,
        budget_of,
        make_plan,
        reproduce,
    )
    from bert_jax.distributed import collectives, startup

    def is_approved(plan: ReproductionPlan) -> bool:
        for line in plan.lines():
            say(line)
        return options.yes or is_confirmed()

    require_matplotlib()
    is_primary = startup.start(os.environ, options.initialization_timeout)
    budget = budget_of(
        options.budget, options.flops, options.seeds, options.microbatches
    )
    with collectives.raise_on_all_processes():
        plan = make_plan(
            options.experiment,
            budget,
            options.output,
            options.input,
            options.tokenizer,
            options.tasks,
        )
    if not collectives.run_on_primary(lambda: is_approved(plan)):
        if is_primary:
            say("Nothing was started.")
        return
    paths = reproduce(plan)
    if is_primary:
        say("\n".join(map(str, paths)) or "No run has a result; all diverged.")


def is_confirmed() -> bool:
    """Ask whether to start; the end of input is a no. UsageError without a terminal."""
    if not sys.stdin.isatty():
        raise UsageError("Nothing was started; pass --yes to start without asking.")
    with contextlib.suppress(EOFError):
        return input("Start? [y/N] ").strip().lower() in ("y", "yes")
    return False
