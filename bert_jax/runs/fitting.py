"""Train any task in a workdir: `fit`, and what `pretrain` and `finetune` share."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence

import jax
from etils import epath
from flax.traverse_util import flatten_dict

from bert_jax.config import RunConfig
from bert_jax.config.checks import require
from bert_jax.distributed.collectives import is_primary, raise_on_all_processes
from bert_jax.distributed.compilation_cache import share_compilation_cache
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.startup import open_workdir
from bert_jax.runs.workdir import (
    check_workdir,
    drop_optimizer_states,
    final_scores,
    write_run_files,
)
from bert_jax.tasks.task import Task
from bert_jax.terminal.messages import warn
from bert_jax.tokenization import Tokenizer
from bert_jax.training import loop
from bert_jax.training.callbacks import Callback, Callbacks
from bert_jax.training.lock import run_lock
from bert_jax.training.loggers import require_loggers
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.resume import Resume, find_resume_on_all
from bert_jax.training.run import Run


@dataclasses.dataclass(frozen=True)
class Workdir:
    """A workdir that a run has locked, or that a dry run reads."""

    path: epath.Path
    resume: Resume | None
    """Its latest verified checkpoint; None: a new run."""
    check_lock: Callable[[], None] = lambda: None
    """Raises RuntimeError if another run took the workdir over."""
    extend: bool = False
    """As `check_workdir`."""


@contextlib.contextmanager
def locked_workdir(
    workdir: str | os.PathLike[str], extend: bool = False
) -> Iterator[Workdir]:
    """Lock a workdir, and find the checkpoint to resume from."""
    path = open_workdir(workdir)
    with run_lock(path) as check_lock:
        yield Workdir(path, find_resume_on_all(path), check_lock, extend)


def fit(
    task: Task,
    config: RunConfig,
    workdir: str | os.PathLike[str],
    tokenizer: Tokenizer,
    callbacks: Sequence[Callback] = (),
    extend: bool = False,
) -> dict[str, float]:
    """Train a task of your own in `workdir`; the same call again resumes it.

    Args:
        task: an object of your own subclass of `Task`. On several hosts its batches are
            this host's shard: `DatasetBatches` takes what `host_shard` returns.
        config: the steps, optimizer, mesh, logging and checkpoints of the run.
        tokenizer: saved with each checkpoint.
        callbacks: objects of your own subclasses of `Callback`, called on the way.
        extend: allow more steps or fewer, or another learning rate, than the run in
            `workdir` had so far.

    Returns:
        The scores over the validation rows after the last step.

    Raises:
        ValueError: the workdir belongs to another configuration, or the task does not
            compute what its `objective` names.
        InterruptedRun: a signal stopped the run, with a complete checkpoint.
        DivergedRun: gradients stayed non-finite.
    """
    config.require_positive("num_steps", "eval_every", "checkpoint_every")
    require_loggers(config)
    require_trainable(task, config, tokenizer)
    with locked_workdir(workdir, extend) as locked:
        with raise_on_all_processes():
            run = Run(
                task=task,
                config=config,
                mesh=make_mesh(config.mesh, config.batch_size, config.microbatches),
                workdir=locked.path,
                tokenizer=tokenizer,
                resume=locked.resume,
                check_lock=locked.check_lock,
                changed=check_workdir(locked.path, config, locked.resume, extend),
            )
        scores = final_scores(run.workdir, config, run.resume)
        if scores is None:
            scores = fit_run(run, callbacks)
        drop_optimizer_states(run.workdir, config)
    return scores


def require_trainable(task: Task, config: RunConfig, tokenizer: Tokenizer) -> None:
    """Raise ValueError unless a task of one's own has what a run trains and saves."""
    require(
        isinstance(tokenizer, Tokenizer),
        f"tokenizer={tokenizer!r:.80} must be a Tokenizer, which each checkpoint has; "
        "pass that of the dataset.",
    )
    params = jax.eval_shape(task.init_params, jax.random.key(config.seed))
    leaves = flatten_dict(params).values() if isinstance(params, dict) else [params]
    shown = " ".join(repr(params).split())  # Flax shows a FrozenDict on many lines
    require(
        all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves),
        f"{type(task).__name__}.init_params returns {shown:.80}; it must be a dict of "
        "arrays or of such dicts, without lists: give each array a name.",
    )
    jax.eval_shape(Optimizer.of(config).freeze, params)


def fit_run(run: Run[RunConfig], callbacks: Sequence[Callback]) -> dict[str, float]:
    """Write the files of a run into its workdir, and train."""
    Callbacks(callbacks)  # a wrong one is refused before anything is written
    resume = write_run_files(run)
    run = dataclasses.replace(run, resume=resume, callbacks=callbacks)
    share_compilation_cache(run.workdir)
    if is_primary() and (line := run.config.optimizer.rate_warning()):
        warn(line)
    return loop.fit(run)
