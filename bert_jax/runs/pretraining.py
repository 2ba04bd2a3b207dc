"""Pretraining on one page: check the configuration, build the task, fit."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterator

import jax

from bert_jax.config import PretrainConfig
from bert_jax.data.records import Dataset, open_dataset
from bert_jax.distributed.collectives import (
    broadcast_from_primary,
    is_primary,
    raise_on_all_processes,
)
from bert_jax.distributed.mesh import host_shard, make_mesh
from bert_jax.distributed.startup import open_workdir
from bert_jax.dry_run.advise import advise
from bert_jax.dry_run.describe import describe
from bert_jax.dry_run.estimate import GIB, choose_devices
from bert_jax.runs.fitting import fit_in_workdir
from bert_jax.runs.init_from import check_source, open_source
from bert_jax.runs.workdir import check_workdir, final_scores
from bert_jax.storage.remote import open_directory
from bert_jax.tasks.pretraining import PretrainingTask
from bert_jax.tasks.unigram import unigram_baseline
from bert_jax.terminal.messages import say
from bert_jax.training.lock import run_lock
from bert_jax.training.resume import find_resume, find_resume_on_all


def check_fit(config: PretrainConfig, dataset: Dataset) -> None:
    """Check that a configuration fits a dataset.

    Raises:
        ValueError: names both values, and the remedy.
    """
    tokenizer, path = dataset.tokenizer, dataset.path
    if dataset.sequence_length != config.data.sequence_length:
        raise ValueError(
            f"data.sequence_length={config.data.sequence_length} but {path} was "
            f"prepared with {dataset.sequence_length}; pass "
            f"--data.sequence-length {dataset.sequence_length}, or prepare it again."
        )
    if tokenizer.vocab_size != config.model.vocab_size:
        raise ValueError(
            f"model.vocab_size={config.model.vocab_size} but the tokenizer of {path} "
            f"has {tokenizer.vocab_size} tokens; pass "
            f"--model.vocab-size {tokenizer.vocab_size}, or prepare it with another."
        )
    actual_values = {
        "mask_token_id": tokenizer.mask_id,
        "vocab_size": tokenizer.vocab_size,
    }
    for name, actual in actual_values.items():
        given = getattr(config.masking, name)
        if given not in (None, actual):
            raise ValueError(
                f"masking.{name}={given} but the tokenizer of {path} says {actual}; "
                "leave the option out."
            )
    if config.data.pairs not in ("", dataset.manifest["pairs"]):
        raise ValueError(
            f"data.pairs={config.data.pairs} but {path} was prepared with "
            f"{dataset.manifest['pairs']}; leave the option out, or prepare it again."
        )
    if config.data.fingerprint not in ("", dataset.fingerprint):
        raise ValueError(
            f"data.fingerprint={config.data.fingerprint} but {path} has "
            f"{dataset.fingerprint}; leave the option out, or name the dataset meant."
        )
    if len(dataset.train) < config.batch_size:
        raise ValueError(
            f"{path} has {len(dataset.train)} training rows, fewer than "
            f"batch_size={config.batch_size}; lower it, or prepare more text."
        )


def resolve(config: PretrainConfig, dataset: Dataset) -> PretrainConfig:
    """Return the configuration, completed by what the dataset defines.

    Raises:
        ValueError: the two do not fit.
    """
    check_fit(config, dataset)
    tokenizer = dataset.tokenizer
    masking = dataclasses.replace(
        config.masking,
        mask_token_id=tokenizer.mask_id,
        vocab_size=tokenizer.vocab_size,
    )
    data = dataclasses.replace(
        config.data,
        fingerprint=dataset.fingerprint,
        pairs=dataset.manifest["pairs"],
    )
    return dataclasses.replace(config, masking=masking, data=data)


def open_for(
    config: PretrainConfig, verify: bool = True
) -> tuple[Dataset, PretrainConfig]:
    """Return the dataset that `config` names, and the configuration completed by it.

    Args:
        verify: verify the dataset's checksums.

    Raises:
        ValueError: no dataset is named, it is damaged, or the two do not fit.
    """
    if not config.data.path:
        raise ValueError(
            "data.path is empty; pass --data.path with a directory that "
            "`bert-jax prepare` made."
        )
    dataset = open_dataset(config.data.path, verify=verify)
    return dataset, resolve(config, dataset)


def pretrain(
    config: PretrainConfig, workdir: str | os.PathLike[str], extend: bool = False
) -> dict[str, float]:
    """Pretrain in `workdir`; the same call again resumes the run.

    Args:
        extend: allow more steps, or another learning rate, than the run in `workdir`
            had so far.

    Returns:
        The scores over the validation rows after the last step, and, as `unigram_…`,
        those of predicting each token by its frequency.

    Raises:
        ValueError: something does not fit; one line says what.
        InterruptedRun: a signal stopped the run, with a complete checkpoint.
        DivergedRun: gradients stayed non-finite.
    """
    directory = open_workdir(workdir)
    with raise_on_all_processes():
        dataset, config = open_for(config, verify=False)
    with run_lock(directory) as check_lock:
        resume = find_resume_on_all(directory)
        with raise_on_all_processes():
            source, config = open_source(config, dataset, resume)
            mesh = make_mesh(config.mesh, config.batch_size, config.microbatches)
            host = host_shard(mesh, jax.process_index())
            task = PretrainingTask(config, dataset, *host)
            changed = check_workdir(directory, config, resume, extend)
            note = check_source(config, source, task.init_params)
        scores = broadcast_from_primary(final_scores(directory, config, resume))
        if scores is None:
            with raise_on_all_processes():
                open_dataset(config.data.path, verify=True, once=True)
            if note and is_primary():
                say(note)
            scores = fit_in_workdir(
                task,
                config,
                mesh,
                directory,
                dataset.tokenizer,
                source,
                resume,
                changed,
                check_lock,
            )
    baseline = unigram_baseline(config, dataset) if scores and is_primary() else {}
    return scores | broadcast_from_primary(baseline)


def dry_run(
    config: PretrainConfig,
    workdir: str | os.PathLike[str],
    devices: int = 0,
    memory_gib: float = 0.0,
    extend: bool = False,
) -> Iterator[str]:
    """Yield lines that describe what `pretrain` would do; nothing is trained.

    Args:
        devices: compile the step for so many devices, and report its memory; 0: no.
        memory_gib: the memory of each device; if it is too little, report what would
            fit. 0: unknown.
        extend: as `pretrain`.

    Raises:
        ValueError: as `pretrain`, or JAX has started with fewer devices.
    """
    dataset, config = open_for(config)
    resume = find_resume(open_directory(workdir)) if workdir else None
    source, config = open_source(config, dataset, resume)
    chosen = choose_devices(devices) if devices else None
    mesh = make_mesh(config.mesh, config.batch_size, config.microbatches, chosen)
    build = functools.partial(PretrainingTask, dataset=dataset)
    task = build(config)
    if workdir:
        check_workdir(open_directory(workdir), config, resume, extend)
    note = check_source(config, source, task.init_params)
    lines = itertools.chain([note] if note else [], describe(config, dataset, task))
    if not devices:
        return lines
    used = list(mesh.devices.flat)
    return itertools.chain(lines, advise(config, build, used, memory_gib * GIB))
