"""Training of any task in a workdir: `fit`, and the end of `pretrain`, `finetune`."""

import os
from collections.abc import Callable
from typing import Any

from etils import epath
from jax.sharding import Mesh

from bert_jax.config import RunConfig
from bert_jax.distributed.collectives import (
    broadcast_from_primary,
    raise_on_all_processes,
)
from bert_jax.distributed.compilation_cache import share_compilation_cache
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.startup import open_workdir
from bert_jax.runs.workdir import check_workdir, final_scores, write_run_files
from bert_jax.tasks.task import Task
from bert_jax.tokenization import Tokenizer
from bert_jax.training import loop
from bert_jax.training.lock import run_lock
from bert_jax.training.resume import Resume, find_resume_on_all
from bert_jax.training.start import InitSource


def fit(
    task: Task,
    config: RunConfig,
    workdir: str | os.PathLike[str],
    tokenizer: Tokenizer,
) -> dict[str, float]:
    """Train a task of your own in `workdir`; the same call again resumes it.

    Args:
        task: an object of your own subclass of `Task`.
        config: the steps, optimizer, mesh, logging and checkpoints of the run.
        tokenizer: saved with each checkpoint.

    Returns:
        The scores over the validation rows after the last step.

    Raises:
        ValueError: the workdir is of another configuration, or the task does not
            compute what its `objective` names.
        InterruptedRun: a signal stopped the run, with a complete checkpoint.
        DivergedRun: gradients stayed non-finite.
    """
    directory = open_workdir(workdir)
    with run_lock(directory) as check_lock:
        resume = find_resume_on_all(directory)
        with raise_on_all_processes():
            mesh = make_mesh(config.mesh, config.batch_size, config.microbatches)
            changed = check_workdir(directory, config, resume)
        scores = broadcast_from_primary(final_scores(directory, config, resume))
        if scores is not None:
            return scores
        return fit_in_workdir(
            task, config, mesh, directory, tokenizer, None, resume, changed, check_lock
        )


def fit_in_workdir(
    task: Task,
    config: RunConfig,
    mesh: Mesh,
    directory: epath.Path,
    tokenizer: Tokenizer,
    source: InitSource | None,
    resume: Resume | None,
    changed: list[dict[str, Any]],
    check_lock: Callable[[], None],
) -> dict[str, float]:
    """Write the run's files into its locked workdir, and train.

    Args:
        changed: the fields that `check_workdir` allowed to change.

    Other arguments, result and errors as `training.loop.fit`.
    """
    write_run_files(directory, config, tokenizer, resume, changed)
    share_compilation_cache(directory)
    saved_tokenizer = directory / "tokenizer"
    return loop.fit(
        task, config, mesh, directory, saved_tokenizer, source, resume, check_lock
    )
