"""Fine-tuning on one page: check what was asked for, build the task, fit."""

import os

import jax
from etils import epath

from bert_jax.config import FinetuneConfig
from bert_jax.distributed.collectives import (
    broadcast_from_primary,
    is_primary,
    raise_on_all_processes,
    run_on_primary_first,
)
from bert_jax.distributed.compilation_cache import share_compilation_cache
from bert_jax.distributed.mesh import host_shard, make_mesh
from bert_jax.distributed.startup import open_workdir
from bert_jax.runs.finetuning_setup import (
    FinetuningSetup,
    prepare_finetuning,
    without_top,
)
from bert_jax.runs.init_from import check_source
from bert_jax.runs.workdir import (
    best_scores,
    check_workdir,
    final_scores,
    write_run_files,
)
from bert_jax.tasks.finetuning import Finetuning
from bert_jax.tasks.finetuning_task import Splits
from bert_jax.terminal.messages import say
from bert_jax.training.lock import run_lock
from bert_jax.training.loop import fit
from bert_jax.training.resume import find_resume_on_all

BASELINE = "baseline: "


def examples_line(setup: FinetuningSetup) -> str:
    """How much a run learns from and is scored on."""
    config = setup.config
    return (
        f"{len(setup.train.tokenized):,} examples to learn from, "
        f"{len(setup.validation.tokenized):,} to score on; {config.num_steps:,} steps "
        f"of {config.batch_size}."
    )


def finetune(
    config: FinetuneConfig,
    workdir: str | os.PathLike[str],
    cache: str | os.PathLike[str] | None = None,
    extend: bool = False,
) -> dict[str, float]:
    """Fine-tune in `workdir`; the same call again goes on where the last one stopped.

    Args:
        cache: directory for tokenized examples, which runs may share; None: in
            `workdir`.
        extend: as `pretrain` takes it.

    Returns:
        The scores of the best checkpoint over the validation examples, and what a rule
        without learning scores, as "baseline: " and what it does.

    Raises:
        ValueError: what was asked for does not fit together; one line says what.
        InterruptedRun: stopped by a signal, with a whole checkpoint.
        DivergedRun: gradients stayed non-finite.
    """
    directory = open_workdir(workdir)
    examples = directory / "examples" if cache is None else epath.Path(cache)
    with raise_on_all_processes():
        mesh = make_mesh(config.mesh, config.batch_size, config.microbatches)
    with run_lock(directory) as check_lock:
        resume = find_resume_on_all(directory)
        # What the first process tokenizes, the others find.
        setup = run_on_primary_first(
            lambda: prepare_finetuning(config, directory, examples, resume)
        )
        config = setup.config
        with raise_on_all_processes():
            host = host_shard(mesh, jax.process_index())
            splits = setup.train, setup.validation
            task = Finetuning(setup.task, config, *splits, *host)
            changed = check_workdir(directory, config, resume, extend)
            source = setup.source
            note = check_source(config, source, task.init_params)
            if source is not None:
                source = without_top(source, config)
        if broadcast_from_primary(final_scores(directory, config, resume)) is None:
            if is_primary():
                say("\n".join(filter(None, [note, examples_line(setup)])))
            write_run_files(directory, config, setup.tokenizer, resume, changed)
            share_compilation_cache(directory)
            tokenizer = directory / "tokenizer"
            fit(task, config, mesh, directory, tokenizer, source, resume, check_lock)
        scores = broadcast_from_primary(best_scores(directory) if is_primary() else {})
    splits_of_examples = Splits(setup.train.examples, setup.validation.examples)
    rule, value = setup.task.baseline(splits_of_examples)
    return scores | {f"{BASELINE}{rule}": value}
