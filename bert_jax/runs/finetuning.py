"""Fine-tuning on one page: check the configuration, build the task, fit."""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence

import jax
from etils import epath
from jax.sharding import Mesh

from bert_jax.checkpoints.steps import read_config_as
from bert_jax.config import BertConfig, ExamplesConfig, FinetuneConfig
from bert_jax.distributed.collectives import (
    raise_on_all_processes,
    run_on_primary,
    run_on_primary_first,
)
from bert_jax.distributed.mesh import host_shard, make_mesh
from bert_jax.inference.evaluation import model_evaluation
from bert_jax.pretrained import resolve_path
from bert_jax.runs.finetuning_examples import chosen_config, say_on_primary
from bert_jax.runs.finetuning_setup import (
    FinetuningSetup,
    prepare_finetuning,
    without_top,
)
from bert_jax.runs.fitting import Workdir, fit_run, locked_workdir
from bert_jax.runs.init_from import check_source, has_all
from bert_jax.runs.workdir import (
    best_scores,
    check_workdir,
    drop_optimizer_states,
    final_scores,
    start_scores,
)
from bert_jax.tables.memory import RowsInMemory
from bert_jax.tasks.baselines import BASELINE as BASELINE
from bert_jax.tasks.finetuning import FinetuningTask, Training
from bert_jax.tasks.own_metrics import ComputeMetrics, load_function, own_scores
from bert_jax.tasks.predictions import Predictions, Splits, main_score_name
from bert_jax.tasks.task import check_attention_kernel
from bert_jax.tokenization import Tokenizer
from bert_jax.training.callbacks import Callback, Callbacks
from bert_jax.training.loggers import require_loggers
from bert_jax.training.resume import SCORE_FIELDS, fields_among
from bert_jax.training.run import Run

BEFORE = "before_"


def examples_line(setup: FinetuningSetup) -> str:
    """Return a line on the number of examples, and of rows if it differs, and steps."""
    train, validation = len(setup.train.examples), len(setup.validation.examples)
    train_rows, rows = len(setup.train.tokenized), len(setup.validation.tokenized)
    is_same = (train_rows, rows) == (train, validation)
    in_rows = "" if is_same else f" ({train_rows:,} and {rows:,} rows)"
    steps = f"{setup.config.num_steps:,} steps of {setup.config.batch_size}"
    learned = f"{train:,} examples to learn from, {validation:,} to score on"
    return f"{learned}{in_rows}; {steps}."


def finetune(
    config: FinetuneConfig | str | os.PathLike[str],
    workdir: str | os.PathLike[str],
    cache: str | os.PathLike[str] | None = None,
    extend: bool = False,
    callbacks: Sequence[Callback] = (),
    *,
    model: str | os.PathLike[str] = "",
    train: RowsInMemory | None = None,
    validation: RowsInMemory | None = None,
    test: RowsInMemory | None = None,
) -> dict[str, float]:
    """Fine-tune in `workdir`; the same call again resumes the run.

    Args:
        config: a configuration, or the name of a task, a file or a configuration of
            the package.
        cache: directory for tokenized examples, which runs may share; None: in
            `workdir`.
        extend: allow more steps or fewer, or another learning rate, than the run in
            `workdir` had so far.
        callbacks: called at each line of the log and each checkpoint.
        model: the model to start from, in place of `config.init_from`.
        train: in place of `config.data.train`: a file, or rows in memory, as a list of
            dicts or a table of pandas, polars, pyarrow or datasets. They are the
            examples that they would be as lines of a .jsonl file.
        validation: as `train`, in place of `config.data.validation`.
        test: as `train`, in place of `config.data.test`.

    Returns:
        The scores of the best checkpoint over the validation examples, those over the
        examples of `data.test` as "test_NAME", as "before_NAME" the first score before
        the first step, unless parameters were random, and as "baseline: NAME" the score
        of a rule that needs no model.

    Raises:
        ValueError: files, model and configuration do not fit together; the message
            names what differs.
        InterruptedRun: a signal stopped the run, with a complete checkpoint.
        DivergedRun: gradients stayed non-finite.
    """
    with raise_on_all_processes():
        sources = {"train": train, "validation": validation, "test": test}
        config = chosen_config(config, model, **sources)
        require_loggers(config)
        Callbacks(callbacks)  # a wrong one is refused first
        check_attention_kernel(config.model, config.data.max_length)
        own_metrics = load_function(config.compute_metrics)
        mesh = make_mesh(config.mesh, config.batch_size, config.microbatches)
    with locked_workdir(workdir, extend) as locked:
        path, resume = locked.path, locked.resume
        examples = path / "examples" if cache is None else epath.Path(cache)
        # The others read from the cache what the primary process tokenized.
        prepare = functools.partial(prepare_finetuning, config, path, examples, resume)
        setup = run_on_primary_first(prepare)
        config, score = setup.config, on_primary(own_metrics)
        with raise_on_all_processes():
            run, note = resolve_run(setup, locked, mesh, score)
        has_ended = final_scores(path, config, resume) is not None
        if not has_ended:
            say_on_primary([line for line in (note, examples_line(setup)) if line])
            fit_run(run, callbacks)
        drop_optimizer_states(path, config)
        scores = end_scores(run, has_ended, own_metrics)
    splits = Splits(setup.train.examples, setup.validation.examples)
    rule, value = setup.task.baseline(splits)
    return scores | {f"{BASELINE}{rule}": value}


def finetuning_of(
    setup: FinetuningSetup,
    host: tuple[int, int] = (0, 1),
    own_metrics: Callable[[Predictions], dict[str, float]] | None = None,
    scores_start: bool = False,
) -> FinetuningTask:
    """Return what trains on the examples of a setup.

    `host` is the index of this host's shard of a batch, and the number of shards; with
    `scores_start`, the parameters are scored before the first step.
    """
    index, num_shards = host
    training = Training(
        setup.config,
        setup.train,
        setup.validation,
        index,
        num_shards,
        own_metrics,
        setup.teacher,
        scores_start,
    )
    return dataclasses.replace(setup.task, training=training)


def resolve_run(
    setup: FinetuningSetup,
    locked: Workdir,
    mesh: Mesh,
    own_metrics: Callable[[Predictions], dict[str, float]] | None,
) -> tuple[Run[FinetuneConfig], str]:
    """Return the run of a setup, and a line that names what it starts from.

    Raise ValueError if the workdir is of another run, or the source does not fit.
    """
    config, source = setup.config, setup.initial_params
    init_params = setup.task.init_params
    changed = check_workdir(locked.path, config, locked.resume, locked.extend)
    note = check_source(config, source, init_params)
    source = source and without_top(source, config)
    host = host_shard(mesh, jax.process_index())
    run = Run(
        task=finetuning_of(setup, host, own_metrics, has_all(source, init_params)),
        config=config,
        mesh=mesh,
        workdir=locked.path,
        tokenizer=setup.tokenizer,
        source=source,
        resume=locked.resume,
        check_lock=locked.check_lock,
        changed=changed,
    )
    return run, note


def on_primary(
    function: ComputeMetrics | None,
) -> Callable[[Predictions], dict[str, float]] | None:
    """Return the scores of a user's function, which the primary process alone calls."""
    if function is None:
        return None
    return lambda values: run_on_primary(lambda: own_scores(function, values))


def end_scores(
    run: Run[FinetuneConfig], has_ended: bool, compute_metrics: ComputeMetrics | None
) -> dict[str, float]:
    """Return the scores of the best checkpoint; those on a test file as "test_NAME".

    As "before_NAME" the main one before the first step, if parameters were not random.
    """
    workdir, config = run.workdir, run.config
    if has_ended and fields_among(run.changed, SCORE_FIELDS):
        say_on_primary(["The validation examples have changed; they are scored."])
        scores = score_best(workdir, config.data, compute_metrics)
    else:
        start, scores = start_scores(workdir), best_scores(workdir)
        name = main_score_name(scores) if scores else ""
        if name in start:
            before, now = start[name], scores[name]
            lines = [f"{name} before training {before:.4f} → {now:.4f} now."]
            if now < before:
                lines.append(
                    f"The model became worse: use {config.init_from} as it is, or "
                    "train with a smaller --optimizer.peak-learning-rate or fewer "
                    "epochs."
                )
            say_on_primary(lines)
            scores |= {f"{BEFORE}{name}": before}
    if config.data.test:
        data = config.data.changed(validation=config.data.test)
        tested = score_best(workdir, data, compute_metrics)
        scores |= {f"test_{name}": value for name, value in tested.items()}
    return scores


def score_best(
    workdir: str | os.PathLike[str],
    data: ExamplesConfig,
    compute_metrics: ComputeMetrics | None = None,
) -> dict[str, float]:
    """Return the scores of the best checkpoint on validation examples, and a baseline.

    The primary process computes them.
    """

    def scores() -> dict[str, float]:
        part = "validation"
        test = model_evaluation(workdir, data.renamed, part, False, compute_metrics)
        return test.scores | test.source.baseline

    return run_on_primary(scores)


def export_form(path: str) -> str:
    """Return the first form of an export that can hold the model of a workdir."""
    directory, _ = resolve_path(path)
    config = read_config_as(directory, "model", BertConfig)
    if Tokenizer.load(directory / "tokenizer").kind == "char":
        return "stablehlo"
    is_own = config.attention == "causal" or config.pooling != BertConfig.pooling
    return "onnx" if is_own else "huggingface"
