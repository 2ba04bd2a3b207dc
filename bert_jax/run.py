"""The story on one page: check what was asked for, build the task, fit."""

import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Iterator

import jax
from etils import epath

from bert_jax.ahead_of_time import GIB, choose_devices
from bert_jax.config import FinetuneConfig, PretrainConfig, RunConfig
from bert_jax.config_json import differences, to_dict, write_json
from bert_jax.data.records import Dataset, open_dataset
from bert_jax.init_from import check_source, open_source
from bert_jax.plan import describe
from bert_jax.processes import first_before_others, from_first, is_first, together
from bert_jax.remote import open_directory
from bert_jax.saving_memory import advise
from bert_jax.sharding import make_mesh, place_of_host
from bert_jax.tasks.finetuning import finetuning_task
from bert_jax.tasks.pretraining import pretraining_task
from bert_jax.tasks.unigram import unigram_baseline
from bert_jax.tokenization import Tokenizer
from bert_jax.training.distributed import check_same, open_workdir
from bert_jax.training.loop import fit
from bert_jax.training.report import METRICS
from bert_jax.tuning import prepare_tuning, without_top
from bert_jax.whole_steps import CHECKPOINTS, best_whole, steps_in

FREE_TO_CHANGE = (
    "allow_extra",
    "checkpoint_every",
    "data.path",
    "data.train",
    "eval_every",
    "keep_checkpoints",
    "log_every",
    "log_examples",
    "mesh.data",
    "mesh.fsdp",
    "mesh.tensor",
    "microbatches",
    "model.remat",
    "profile_steps",
)
"""Fields that a run may be continued with another value of: none changes what is
learned (the mesh and `microbatches` do in the last bits, by the order of sums, and the
latter draws other dropout)."""

BASELINE = "baseline: "


def check_fit(config: PretrainConfig, dataset: Dataset) -> None:
    """Refuse a configuration and a dataset that do not belong together.

    Raises:
        ValueError: says what each of them has, and what to do.
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
    found = {"mask_token_id": tokenizer.mask_id, "vocab_size": tokenizer.vocab_size}
    for name, actual in found.items():
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
    """The configuration with all that the dataset says filled in.

    Raises:
        ValueError: the two do not belong together.
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


def check_workdir(workdir: epath.Path, config: RunConfig) -> None:
    """Refuse a workdir that belongs to another configuration.

    One without a checkpoint belongs to none yet: its run never got anywhere.

    Raises:
        ValueError: says what differs.
    """
    if workdir.exists() and not workdir.is_dir():
        raise ValueError(f"workdir={workdir} is a file; name a directory.")
    if not steps_in(workdir / CHECKPOINTS):
        return
    path = workdir / "config.json"
    if not path.exists():
        raise ValueError(
            f"{workdir} holds checkpoints but no config.json, so nobody can tell what "
            "they belong to; choose another --workdir."
        )
    changed = [
        f"{name} was {before!r} and is {now!r}"
        for name, before, now in differences(
            json.loads(path.read_text()), to_dict(config)
        )
        if name not in FREE_TO_CHANGE
    ]
    if changed:
        raise ValueError(
            f"{workdir} belongs to another run: {'; '.join(changed)}. Repeat its "
            "options, or choose another --workdir."
        )


def open_for(config: PretrainConfig) -> tuple[Dataset, PretrainConfig]:
    """The dataset that `config` names, verified, and the configuration completed by it.

    Raises:
        ValueError: no dataset is named, it is damaged, or the two disagree.
    """
    if not config.data.path:
        raise ValueError(
            "data.path is empty; pass --data.path with a directory that "
            "`bert-jax prepare` made."
        )
    dataset = open_dataset(config.data.path, verify=True)
    return dataset, resolve(config, dataset)


def pretrain(
    config: PretrainConfig, workdir: str | os.PathLike[str]
) -> dict[str, float]:
    """Pretrain in `workdir`; the same call again goes on where the last one stopped.

    Returns:
        The scores over the validation rows after the last step, and, as `unigram_…`,
        those of guessing each token by its frequency.

    Raises:
        ValueError: what was asked for does not fit together; one line says what.
        InterruptedRun: stopped by a signal, with a whole checkpoint.
        DivergedRun: gradients stayed non-finite.
    """
    directory = open_workdir(workdir)
    with together():
        dataset, config = open_for(config)
        source, config = open_source(config, dataset, directory)
        mesh = make_mesh(config.mesh, config.batch_size, config.microbatches)
        share = place_of_host(mesh, jax.process_index())
        task = pretraining_task(config, dataset, *share)
        check_workdir(directory, config)
        note = check_source(config, source, task.initialise)
        if note and is_first():
            print(note, flush=True)
    begin(directory, config, dataset.tokenizer)
    scores = fit(task, config, mesh, directory, directory / "tokenizer", source)
    told = unigram_baseline(config, dataset) if scores and is_first() else {}
    return scores | from_first(told)


def begin(workdir: epath.Path, config: RunConfig, tokenizer: Tokenizer) -> None:
    """Write what a run is into its workdir, once all processes agree on it."""
    check_same(config)
    with together():
        if is_first():
            workdir.mkdir(parents=True, exist_ok=True)
            write_json(to_dict(config), workdir / "config.json")
            tokenizer.save(workdir / "tokenizer")


def dry_run(
    config: PretrainConfig,
    workdir: str | os.PathLike[str],
    devices: int = 0,
    memory_gib: float = 0.0,
) -> Iterator[str]:
    """What `pretrain` would train on what, line by line; nothing is trained.

    Args:
        devices: compile the step for so many, and tell the memory it takes; 0: do not.
        memory_gib: that each has; if it is too little, tell what to do. 0: no matter.

    Raises:
        ValueError: as `pretrain`, or JAX has started with fewer devices.
    """
    dataset, config = open_for(config)
    source, config = open_source(config, dataset, open_directory(workdir))
    chosen = choose_devices(devices) if devices else None
    mesh = make_mesh(config.mesh, config.batch_size, config.microbatches, chosen)
    build = functools.partial(pretraining_task, dataset=dataset)
    task = build(config)
    if workdir:
        check_workdir(epath.Path(workdir), config)
    note = check_source(config, source, task.initialise)
    lines = itertools.chain([note] if note else [], describe(config, dataset, task))
    if not devices:
        return lines
    used = list(mesh.devices.flat)
    return itertools.chain(lines, advise(config, build, used, memory_gib * GIB))


def finetune(
    config: FinetuneConfig,
    workdir: str | os.PathLike[str],
    cache: str | os.PathLike[str] | None = None,
) -> dict[str, float]:
    """Fine-tune in `workdir`; the same call again goes on where the last one stopped.

    Args:
        cache: directory for tokenized examples, which runs may share; None: in
            `workdir`.

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
    with together():
        mesh = make_mesh(config.mesh, config.batch_size, config.microbatches)
    # What the first process tokenizes, the others find.
    tuning = first_before_others(lambda: prepare_tuning(config, directory, examples))
    config, records = tuning.config, tuning.validation.records
    with together():
        share = place_of_host(mesh, jax.process_index())
        task = finetuning_task(
            tuning.problem, config, tuning.train, tuning.validation, *share
        )
        check_workdir(directory, config)
        source = tuning.source
        note = check_source(config, source, task.initialise)
        if source is not None:
            source = without_top(source, config)
        if note and is_first():
            print(note, flush=True)
    if is_first():
        print(
            f"{len(tuning.train.examples):,} examples to learn from, "
            f"{len(tuning.validation.examples):,} to score on; {config.num_steps:,} "
            f"steps of {config.batch_size}.",
            flush=True,
        )
    begin(directory, config, tuning.tokenizer)
    fit(task, config, mesh, directory, directory / "tokenizer", source)
    rule, value = tuning.problem.baseline(tuning.train.records, records)
    scores = from_first(best_scores(directory) if is_first() else {})
    return scores | {f"{BASELINE}{rule}": value}


def best_scores(workdir: epath.Path) -> dict[str, float]:
    """What `metrics.jsonl` says of the best checkpoint."""
    best, _ = best_whole(workdir / CHECKPOINTS)
    for line in map(json.loads, (workdir / METRICS).read_text().splitlines()):
        if line["split"] == "validation" and line["step"] == best:
            print(f"The best checkpoint is that of step {best}.", flush=True)
            return {k: v for k, v in line.items() if k not in ("step", "split")}
    return {}
