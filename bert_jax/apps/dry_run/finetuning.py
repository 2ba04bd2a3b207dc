"""What `finetune --dry-run` prints."""

import os
import tempfile
from collections.abc import Iterator

from etils import epath

from bert_jax.apps.dry_run.describe import (
    MORE,
    describe_muon,
    parameters_line,
    tensor_lines,
)
from bert_jax.apps.dry_run.measured import measured_lines
from bert_jax.config import FinetuneConfig
from bert_jax.distributed.mesh import make_mesh
from bert_jax.runs.finetuning import (
    examples_line,
    finetuning_of,
    on_primary,
    resolve_run,
)
from bert_jax.runs.finetuning_setup import prepare_finetuning, with_steps
from bert_jax.runs.fitting import Workdir
from bert_jax.runs.sweeps import grid, resolve_runs
from bert_jax.storage.remote import open_directory
from bert_jax.tasks.baselines import BASELINE
from bert_jax.tasks.example_report import length_line
from bert_jax.tasks.own_metrics import load_function
from bert_jax.tasks.predictions import Splits
from bert_jax.training.resume import find_resume


def dry_run(
    config: FinetuneConfig,
    verbose: bool = False,
    *,
    workdir: str | os.PathLike[str] = "",
    extend: bool = False,
    seeds: int = 1,
    sweep: bool = False,
) -> Iterator[str]:
    """Yield lines on what `finetune` would cost, and learn from.

    No run is started, and no workdir is written. A few steps are measured, with a batch
    of the longest rows. Of several runs, all but their number is said of the first.
    Raise ValueError where `finetune` does.

    Args:
        verbose: yield also each tensor, and the compiler's figures.
        workdir: of the run, which the configuration must fit; "": a new one.
        extend: allow other steps, or another learning rate, than it had.
        seeds: runs of each setting, which with `sweep` are those of the grid.
    """
    with tempfile.TemporaryDirectory() as directory:
        new = epath.Path(directory)
        path, resume = open_directory(workdir) if workdir else new / "run", None
        runs = [config]
        if sweep or seeds > 1:
            config, done = resolve_runs(config, path, seeds)
            runs = [run.config for run in grid(config, seeds, sweep)]
            config = runs[0]
            yield f"runs: {len(runs)}, {len(done)} of them done; the first:"
        elif workdir:
            resume = find_resume(path)
        own_metrics = on_primary(load_function(config.compute_metrics))
        setup = prepare_finetuning(config, path, new / "examples", resume)
        for other in runs:
            with_steps(other, len(setup.train.tokenized))
    mesh = make_mesh(config.mesh, config.batch_size, config.microbatches)
    read = Workdir(path, resume, extend=extend)
    run, note = resolve_run(setup, read, mesh, own_metrics)
    task, config = finetuning_of(setup), setup.config
    batch = task.batches.longest()
    steps = config.num_steps - (run.resume.step if run.resume else 0)
    yield from measured_lines(run, batch, steps, verbose)
    yield from filter(None, [note, examples_line(setup)])
    yield length_line(setup.train, task.batches.boundaries)
    splits = Splits(setup.train.examples, setup.validation.examples)
    rule, value = setup.task.baseline(splits)
    yield f"{BASELINE}{rule} {value:.4g}"
    yield parameters_line(task, batch)
    yield from describe_muon(config, task)
    yield from tensor_lines(task) if verbose else [MORE]
