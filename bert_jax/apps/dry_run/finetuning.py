"""What `finetune --dry-run` prints."""

import tempfile
from collections.abc import Iterator

import numpy as np
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
from bert_jax.runs.finetuning import examples_line, finetuning_of
from bert_jax.runs.finetuning_setup import prepare_finetuning
from bert_jax.runs.init_from import check_source
from bert_jax.tasks.baselines import BASELINE
from bert_jax.tasks.example_report import length_line
from bert_jax.tasks.predictions import Splits
from bert_jax.training.run import Run


def dry_run(config: FinetuneConfig, verbose: bool = False) -> Iterator[str]:
    """Yield lines on what `finetune` would cost, and learn from.

    No run is started, and no workdir is written. A few steps are measured, with a batch
    of the longest rows.

    Args:
        verbose: yield also each tensor, and the compiler's figures.

    Raises:
        ValueError: as `finetune`.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = epath.Path(directory)
        setup = prepare_finetuning(config, path / "run", path / "examples")
    config, task = setup.config, finetuning_of(setup)
    note = check_source(config, setup.initial_params, task.init_params)
    longest = (
        np.zeros(config.batch_size, np.int64) + setup.train.tokenized.lengths.argmax()
    )
    batch = setup.train.tokenized.gather(longest, task.batches.boundaries[-1])
    mesh = make_mesh(config.mesh, config.batch_size, config.microbatches)
    run = Run(task=task, config=config, mesh=mesh)
    yield from measured_lines(run, batch, config.num_steps, verbose)
    yield from filter(None, [note, examples_line(setup)])
    yield length_line(setup.train, task.batches.boundaries)
    splits = Splits(setup.train.examples, setup.validation.examples)
    rule, value = setup.task.baseline(splits)
    yield f"{BASELINE}{rule} {value:.4g}"
    yield parameters_line(task, batch)
    yield from describe_muon(config, task)
    yield from tensor_lines(task) if verbose else [MORE]
