"""What `init_from` names: a run to go on from, or parameters from elsewhere."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from etils import epath

from bert_jax.checkpoints.restore import read_params, require_same_shapes
from bert_jax.config import PretrainConfig, RunConfig
from bert_jax.config.model import Params
from bert_jax.data.records import Dataset
from bert_jax.distributed.mesh import path_name
from bert_jax.pretrained import Model, load_pretrained, resolve_path
from bert_jax.storage.manifest import read_manifest
from bert_jax.tokenization import Tokenizer
from bert_jax.training.resume import Resume
from bert_jax.training.start import Source

SAME_FIELDS = ("num_attention_heads", "hidden_act", "layer_norm_eps", "attention")
"""Fields of the model that no parameter's shape shows, and that change its output."""


def open_source(
    config: PretrainConfig, dataset: Dataset, resume: Resume | None
) -> tuple[Source | None, PretrainConfig]:
    """What to begin from, and where in its count of steps this run begins.

    A run that has a whole checkpoint of its own needs the source no more.

    Raises:
        ValueError: its tokenizer is not the dataset's, its last step is past ours, or
            it has no optimizer to keep.
    """
    if not config.init_from:
        return None, config
    if resume is not None:
        return None, _beginning_at(_first_step(resume), config)
    source, imported = resolve_path(config.init_from)
    if imported:
        return _imported_params(config, dataset), config
    _check_tokenizer(source, Tokenizer.load(source / "tokenizer"), dataset)
    if not config.keep_optimizer:
        return read_params(source), config
    step = int(read_manifest(source)["step"])
    if step >= config.num_steps:
        raise ValueError(
            f"num_steps={config.num_steps} but {source} is at step {step} already; "
            "with keep_optimizer, num_steps counts on from there."
        )
    return source, _beginning_at(step, config)


def _first_step(resume: Resume) -> int:
    """Where the order of a begun run's rows begins.

    Raises:
        ValueError: its configuration does not say, or says it wrongly.
    """
    data = resume.config.get("data")
    step = data.get("first_step") if isinstance(data, dict) else None
    if type(step) is not int or not 0 <= step <= resume.step:
        raise ValueError(
            f"config.json of the workdir has data.first_step={step!r:.40} and its "
            f"newest checkpoint step {resume.step}; it is damaged. Remove the file: "
            "the run then goes on with the checkpoint's own."
        )
    return step


def _beginning_at(step: int, config: PretrainConfig) -> PretrainConfig:
    data = dataclasses.replace(config.data, first_step=step)
    return dataclasses.replace(config, data=data)


def _check_tokenizer(
    source: epath.Path, tokenizer: Tokenizer, dataset: Dataset
) -> None:
    if tokenizer.fingerprint == dataset.tokenizer.fingerprint:
        return
    where = source / "tokenizer"
    remedy = f"prepare the text again with --tokenizer {where}."
    if not where.exists():
        remedy = (
            f"make a checkpoint of {source} by `bert-jax convert import`, and "
            "prepare the text again with --tokenizer CHECKPOINT/tokenizer."
        )
    raise ValueError(f"{source} and {dataset.path} have different tokenizers; {remedy}")


def _imported_params(config: PretrainConfig, dataset: Dataset) -> Params:
    """The parameters of a model that was imported, checked against the run."""
    model = load_pretrained(config.init_from, config.allow_extra)
    if config.keep_optimizer:
        raise ValueError(
            f"keep_optimizer=True but {model.directory} was imported and has no "
            "optimizer; leave the option out."
        )
    _check_tokenizer(model.directory, model.tokenizer, dataset)
    _check_fields(config, model)
    return model.params


def _check_fields(config: PretrainConfig, model: Model) -> None:
    for name in SAME_FIELDS:
        ours, theirs = getattr(config.model, name), getattr(model.config, name)
        if ours != theirs:
            raise ValueError(
                f"model.{name}={ours} but {model.directory} was trained with "
                f"{theirs}; pass --model.{name.replace('_', '-')} {theirs}."
            )


def check_source(
    config: RunConfig, source: Source | None, init_params: Callable[[jax.Array], Params]
) -> str:
    """Refuse parameters that are not those of the run, but for whole heads.

    Args:
        init_params: draws the run's parameters by a key.

    Returns:
        A line that says what is gone on from, which heads are drawn anew and which are
        left aside; nothing where nothing is gone on from.

    Raises:
        ValueError: a shape or dtype differs, or a leaf is missing or too many.
    """
    if source is None:
        return ""
    shapes = jax.eval_shape(init_params, jax.random.key(config.seed))
    if isinstance(source, epath.Path):
        require_same_shapes(source / "state", shapes)
        return f"From {config.init_from}, with its optimizer and its count of steps."
    wanted, given = _shapes(shapes), _shapes(source)
    fresh, unused = shapes.keys() - source.keys(), source.keys() - shapes.keys()
    wrong = [
        f"{name} is {given.get(name, 'absent')} and should be "
        f"{wanted.get(name, 'absent')}"
        for name in sorted(wanted.keys() | given.keys())
        if wanted.get(name) != given.get(name)
        and (name.split("/")[0] not in fresh | unused or "encoder" in fresh)
    ]
    if wrong:
        raise ValueError(
            f"{config.init_from} does not fit this run: {'; '.join(wrong[:2])}; "
            f"{len(wrong)} in all differ. Give the run the model's own shape."
        )
    said = {f"Drawn by seed {config.seed}": fresh, "Left aside": unused}
    parts = [
        f" {what}: {', '.join(sorted(names))}." for what, names in said.items() if names
    ]
    return (
        f"From {config.init_from}, its parameters alone: a new optimizer, and steps "
        f"count from 0.{''.join(parts)}"
    )


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    return {
        path_name(path): tuple(leaf.shape)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
