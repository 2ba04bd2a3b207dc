"""Pretraining on one page: check the configuration, build the task, fit."""

import dataclasses
import os
from collections.abc import Sequence
from typing import TypeVar

import jax

from bert_jax.config import PretrainConfig
from bert_jax.config.files import given_config, load_config
from bert_jax.config.serialization import to_dict
from bert_jax.data.records import Dataset, open_dataset
from bert_jax.distributed.collectives import (
    is_primary,
    raise_on_all_processes,
    run_on_primary,
)
from bert_jax.distributed.mesh import host_shard, make_mesh
from bert_jax.distributed.startup import check_same_options
from bert_jax.runs.fitting import Workdir, fit_run, locked_workdir
from bert_jax.runs.hours import config_for_hours, require_hours
from bert_jax.runs.init_from import Shape, check_source, open_source, require_layers
from bert_jax.runs.teacher import pretraining_teacher
from bert_jax.runs.workdir import check_workdir, drop_optimizer_states, final_scores
from bert_jax.tasks.pretraining.task import (
    PretrainingTask,
    require_words,
    unigram_baseline,
)
from bert_jax.tasks.task import check_attention_kernel
from bert_jax.terminal.messages import say, warn
from bert_jax.training.callbacks import Callback, Callbacks
from bert_jax.training.loggers import require_loggers
from bert_jax.training.resume import Resume
from bert_jax.training.run import Run

T = TypeVar("T")


def resolve(config: PretrainConfig, dataset: Dataset) -> PretrainConfig:
    """Return the configuration, completed by what the dataset defines, if they fit."""
    tokenizer = dataset.tokenizer

    def defined(name: str, given: T | None, actual: T, unset: T | None = None) -> T:
        """Return the dataset's value; the configuration has it, too, or none."""
        if given in (unset, actual):
            return actual
        raise ValueError(
            f"{name}={given} but {dataset.path} has {actual}; leave it out (of the "
            "config.json of a run: name --data.path), or prepare the text again."
        )

    data, model, masking = config.data, config.model, config.masking
    length, pairs = dataset.sequence_length, dataset.manifest["pairs"]
    size, mask_id = tokenizer.vocab_size, tokenizer.mask_id
    data = data.changed(
        sequence_length=defined(
            "data.sequence_length", data.sequence_length, length, 0
        ),
        fingerprint=defined(
            "data.fingerprint", data.fingerprint, dataset.fingerprint, ""
        ),
        pairs=defined("data.pairs", data.pairs, pairs, ""),
    )
    model = model.changed(
        vocab_size=defined("model.vocab_size", model.vocab_size, size, 0),
        # transformers gives every token of a tokenizer without segments segment 0, so a
        # second row that is trained here would be lost in an export.
        type_vocab_size=model.type_vocab_size if tokenizer.has_segments else 1,
    )
    masking = masking.changed(
        vocab_size=defined("masking.vocab_size", masking.vocab_size, size),
        mask_token_id=defined("masking.mask_token_id", masking.mask_token_id, mask_id),
    )
    config = config.changed(data=data, model=model, masking=masking)
    require_rows(config, dataset)
    return config


def require_rows(config: PretrainConfig, dataset: Dataset) -> None:
    """Raise ValueError if a dataset has fewer rows than a run needs."""
    if len(dataset.train) < config.batch_size:
        raise ValueError(
            f"{dataset.path} has {len(dataset.train)} training rows, fewer than "
            f"batch_size={config.batch_size}; lower it, or prepare more text."
        )
    if config.patience and not len(dataset.validation):
        raise ValueError(
            f"patience={config.patience} needs scores, and {dataset.path} has no "
            "validation rows; leave it out, or prepare the text by `bert-jax prepare "
            "--validation-fraction` with a larger one."
        )


def complete_masking(
    config: PretrainConfig, dataset: Dataset, resume: Resume | None
) -> PretrainConfig:
    """Return the configuration with `masking.max_predictions` set.

    A run that is resumed keeps its own number; a new one gets what its rate needs, and
    cannot mask words if the vocabulary does not mark them.
    """
    masking = config.masking
    if resume is None:
        require_words(config, dataset)
    before = resume.config.get("masking") if resume else None
    number = before.get("max_predictions") if isinstance(before, dict) else None
    if type(number) is not int or number < 1:
        # The record is damaged: `check_workdir` refuses it, and names its file.
        number = masking.num_slots(dataset.sequence_length)
    if masking.max_predictions is None:
        return config.changed(masking={"max_predictions": number})
    return config


def open_for(
    config: PretrainConfig, verify: bool = True
) -> tuple[Dataset, PretrainConfig]:
    """Return the dataset that `config` names, and the configuration completed by it.

    With `verify`, verify the dataset's checksums. Raise ValueError if no dataset is
    named, it is damaged, or the two do not fit.
    """
    if not config.data.path:
        raise ValueError(
            "data.path is empty; pass --data.path with a directory that "
            "`bert-jax prepare` made."
        )
    dataset = open_dataset(config.data.path, verify=verify)
    resolved = resolve(config, dataset)
    if resolved.model.type_vocab_size != config.model.type_vocab_size and is_primary():
        say("The tokenizer gives both texts of a pair segment 0: type_vocab_size=1.")
    return dataset, resolved


def pretrain(
    config: PretrainConfig | str | os.PathLike[str],
    workdir: str | os.PathLike[str],
    extend: bool = False,
    callbacks: Sequence[Callback] = (),
    named_shape: Shape | None = None,
    hours: float | None = None,
) -> dict[str, float]:
    """Pretrain in `workdir`; the same call again resumes the run.

    Args:
        config: or the name or the file of one, as `bert-jax pretrain` takes it.
        extend: allow more steps or fewer, or another learning rate, than the run in
            `workdir` had so far.
        callbacks: called at each line of the log and each checkpoint.
        named_shape: options of the model's shape on the command line; with
            `config.init_from`, the rest of `config.model` gives way to the model's own.
            None: what `config.model` sets is meant.
        hours: take as many steps as fit into them on these devices, in place of
            `config.num_steps`, with warm-up and decay in proportion; a run that is
            resumed keeps its number.

    Returns:
        The scores over the validation rows after the last step, and, as `unigram_…`,
        those of predicting each token by its frequency.

    Raises:
        ValueError: dataset, configuration and workdir do not fit together; the message
            names what differs.
        InterruptedRun: a signal stopped the run, with a complete checkpoint.
        DivergedRun: gradients stayed non-finite.
    """
    with raise_on_all_processes():
        config = given_config(
            config, PretrainConfig, lambda path: load_config(path, PretrainConfig)
        )
        require_loggers(config)
        Callbacks(callbacks)  # a wrong one is refused first
        require_hours(hours, extend)
        dataset, config = open_for(config, verify=False)
        check_attention_kernel(config.model, config.data.sequence_length)
    with locked_workdir(workdir, extend) as locked:
        run, note = resolve_run(config, dataset, locked, named_shape, hours=hours)
        scores = final_scores(run.workdir, run.config, run.resume)
        config = run.config
        rows = [c["before"] for c in run.changed if c["field"] == "eval_rows"]
        if scores is None:
            with raise_on_all_processes():
                open_dataset(config.data.path, verify=True, once=True)
            _say_first(note, config, dataset)
            scores = fit_run(run, callbacks)
        elif rows:
            if is_primary():
                say(f"The run has ended, and its scores are of eval_rows={rows[0]}.")
            config = config.changed(eval_rows=rows[0])
        drop_optimizer_states(run.workdir, run.config)
    if not scores:
        return scores
    return scores | run_on_primary(lambda: unigram_baseline(config, dataset))


def resolve_run(
    config: PretrainConfig,
    dataset: Dataset,
    workdir: Workdir,
    named_shape: Shape | None = None,
    *,
    hours: float | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> tuple[Run[PretrainConfig], str]:
    """Return the run of a configuration, and a line that names what it starts from.

    `config` comes from `open_for`. The other arguments, and the errors, are those of
    `pretrain` and `dry_run`.
    """
    resume = workdir.resume
    with raise_on_all_processes():
        config = complete_masking(config, dataset, resume)
        source, config = open_source(config, dataset, resume, named_shape)
        if resume is None:
            require_layers(config, config.model, is_random=not config.init_from)
        teacher, config = pretraining_teacher(config, dataset, resume)
        mesh = make_mesh(config.mesh, config.batch_size, config.microbatches, devices)
        # Devices that are named need not be present: a batch is then that of all hosts.
        host = (0, 1) if devices else host_shard(mesh, jax.process_index())
        task = PretrainingTask(config, dataset, host[0], host[1], teacher)
    check_same_options(to_dict(config) | {"hours": hours})  # before they measure steps
    if hours is not None:
        trial = Run(task=task, config=config, mesh=mesh, resume=resume)
        config = config_for_hours(trial, hours, len(dataset.validation))
        task = dataclasses.replace(task, config=config)
    with raise_on_all_processes():
        run = Run(
            task=task,
            config=config,
            mesh=mesh,
            workdir=workdir.path,
            tokenizer=dataset.tokenizer,
            source=source,
            resume=resume,
            check_lock=workdir.check_lock,
            changed=check_workdir(workdir.path, config, resume, workdir.extend),
        )
        note = check_source(config, source, task.init_params)
    return run, note


def rows_line(config: PretrainConfig, dataset: Dataset) -> str:
    """Return how often a run sees its rows."""
    # With keep_optimizer, earlier steps were those of another run.
    num_rows, num_steps = len(dataset.train), config.num_steps - config.data.first_step
    return (
        f"training rows: {num_rows:,}; {num_steps:,} steps of {config.batch_size} rows "
        f"are {num_steps * config.batch_size / num_rows:.2f} epochs"
    )


def _say_first(note: str, config: PretrainConfig, dataset: Dataset) -> None:
    """Print what a run begins with, and whether its masks are fewer than its rate's."""
    if not is_primary():
        return
    say("\n".join(filter(None, [note, rows_line(config, dataset)])))
    cap = config.masking.cap(dataset.sequence_length)
    if cap and config.objective == "masked_lm":
        warn(f"warning: masking rate {config.masking.rate:g}: {cap}.")
