"""The model that `init_from` names: a run to continue, or parameters to start from."""

import contextlib
import shlex
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import jax
from etils import epath
from flax.traverse_util import flatten_dict

from bert_jax.checkpoints.optimizer_state import has_optimizer_state
from bert_jax.checkpoints.restore import read_params, require_same_shapes
from bert_jax.checkpoints.steps import read_config
from bert_jax.config import BertConfig, PretrainConfig, RunConfig
from bert_jax.config.checks import require
from bert_jax.config.model import SHAPE_FIELDS, Params
from bert_jax.data.records import Dataset
from bert_jax.distributed.collectives import is_primary
from bert_jax.model.finite import require_finite
from bert_jax.pretrained import load_pretrained, pinned_name, resolve_path
from bert_jax.storage.files import JsonObject
from bert_jax.storage.manifest import read_manifest
from bert_jax.terminal.messages import say
from bert_jax.tokenization import Tokenizer
from bert_jax.training.resume import Resume
from bert_jax.training.run import InitSource

ConfigT = TypeVar("ConfigT", bound=RunConfig)
Shape: TypeAlias = Mapping[str, object]
"""Values, or their texts, by the names of fields of the model."""


def pin_source(config: ConfigT, before: JsonObject | None) -> ConfigT:
    """Return the configuration with a commit in the place of a branch of the hub.

    An earlier start, whose configuration is `before`, keeps its commit, also when the
    branch has moved since.
    """
    known = None if before is None else str(before.get("init_from"))
    source = pinned(config.init_from, known, "The run began from")
    return config.changed(init_from=source)


def pinned(name: str, before: str | None, note: str) -> str:
    """Return the name of a model with a commit in the place of a branch of the hub.

    What an earlier start has recorded, `before`, is kept; `note` begins the line that
    is printed then.
    """
    kept = pinned_name(name, before)
    if kept == before != name and is_primary():
        say(f"{note} {before}, and keeps it.")
    return kept


def with_shape_of(
    config: PretrainConfig,
    source: Mapping[str, Any],
    where: str = "",
    named: Shape | None = None,
) -> PretrainConfig:
    """Return the configuration with the source's shape, all of it.

    `source` has the fields of its model. `attention` may differ: a causal LM may start
    from a masked one, and the reverse. A line says what was taken of `where`, unless
    that is empty. `named` are options of the shape on the command line; with None,
    fields of the configuration count that differ from their defaults. Raise ValueError
    if they differ from the source, or the source's shape does not fit the rows.
    """
    ours, default = vars(config.model), vars(BertConfig())
    if named is None:
        named = {k: ours[k] for k in SHAPE_FIELDS if ours[k] != default[k]}
    shape = {name: source[name] for name in SHAPE_FIELDS if name in source}
    differing = {k: v for k, v in named.items() if not _agree(v, shape.get(k, v))}
    given = ", ".join(f"{name}={value}" for name, value in differing.items())
    theirs = ", ".join(f"{name}={shape[name]}" for name in differing)
    require(
        not differing,
        f"model: {given} but {config.init_from} has {theirs}; leave the options out: a "
        "run has the shape of the model that it starts from.",
    )
    length = config.data.sequence_length
    positions = shape.get("max_position_embeddings", length)
    if positions < length:
        raise ValueError(
            f"{config.init_from} has {positions} positions, and the rows have {length} "
            "tokens; prepare rows that fit, or make a model with more positions by "
            f"`bert-jax convert extend {shlex.quote(config.init_from)} --positions "
            f"{length} --output DIRECTORY`."
        )
    taken = {name: value for name, value in shape.items() if value != ours[name]}
    values = ", ".join(f"{name}={value}" for name, value in taken.items())
    try:
        config = config.changed(model=taken)
    except ValueError as error:
        line = f"{config.init_from} has {values}, and the other options of the model "
        raise ValueError(f"{line}do not fit that; leave them out. {error}") from error
    config.check_shape()
    if taken and where and is_primary():
        say(f"As {where}: {values}.")
    return config


def _agree(named: object, value: object) -> bool:
    """Whether a value, or its text, equals the source's: 1e-12 is 1.0e-12."""
    if str(named) == str(value):
        return True
    with contextlib.suppress(ValueError):
        return float(str(named)) == float(str(value))
    return False


def open_source(
    config: PretrainConfig,
    dataset: Dataset,
    resume: Resume | None,
    named: Shape | None = None,
) -> tuple[InitSource | None, PretrainConfig]:
    """Return the source, and the configuration with its shape and the first step.

    A run with a complete checkpoint of its own does not need the source. Raise
    ValueError if the source's tokenizer is not the dataset's, it has no optimizer to
    keep, or it has another shape than the options in `named`.
    """
    config = pin_source(config, None if resume is None else resume.config)
    # A file may have that of another run.
    config = config.changed(data={"first_step": 0})
    if not config.init_from:
        return None, config
    if resume is not None:
        model = resume.config.get("model")
        shape = model if isinstance(model, dict) else {}
        config = with_shape_of(config, shape, named=named)
        return None, config.changed(data={"first_step": _first_step(resume)})
    source, imported = resolve_path(config.init_from)
    if imported:
        return _imported_params(config, dataset, named)
    _check_tokenizer(source, Tokenizer.load(source / "tokenizer"), dataset)
    saved = read_config(source)
    config = with_shape_of(config, saved["model"], str(source), named)
    attention = saved["model"].get("attention", "bidirectional")
    _say_change(source, "attention", attention, config.model.attention)
    pairs = saved.get("data", {}).get("pairs", "none")
    if "none" not in (pairs, config.data.pairs):
        _say_change(source, "pairs", pairs, config.data.pairs)
    if not config.keep_optimizer:
        params = read_params(source)
        require_finite(params, source)
        return params, config
    step = _step_with_optimizer(source, config.optimizer.algorithm)
    return source, config.changed(data={"first_step": step})


def _step_with_optimizer(source: epath.Path, algorithm: str) -> int:
    """Return the step of a checkpoint that has the state of this optimizer.

    Raise ValueError if it has none, a fine-tuning's, or that of another algorithm.
    """
    problem = ""
    manifest, saved = read_manifest(source), read_config(source)
    before = saved.get("optimizer", {}).get("algorithm", "adamw")
    if "task" in saved:
        problem = (
            "is of a run of `bert-jax finetune`, whose optimizer has other parameters"
        )
    elif not has_optimizer_state(manifest):
        problem = "has no optimizer's state"
    elif before != algorithm:
        problem = f"has the state of {before} and optimizer.algorithm={algorithm}"
    if problem:
        raise ValueError(
            f"keep_optimizer=True but {source} {problem}; leave the option out."
        )
    return int(manifest["step"])


def _first_step(resume: Resume) -> int:
    """Return the step at which the order of a run's rows starts."""
    data = resume.config.get("data")
    step = data.get("first_step") if isinstance(data, dict) else None
    if type(step) is not int or not 0 <= step <= resume.step:
        raise ValueError(
            f"config.json of the workdir has data.first_step={step!r:.40} and its "
            f"newest checkpoint step {resume.step}; it is damaged. Remove the file: "
            "the run then uses the checkpoint's own."
        )
    return step


def _check_tokenizer(
    source: epath.Path, tokenizer: Tokenizer, dataset: Dataset
) -> None:
    if tokenizer.agrees_with(dataset.tokenizer):
        return
    where = source / "tokenizer"
    made, place = "", shlex.quote(str(where))
    if not where.exists():
        made = f"make a checkpoint of {source} by `bert-jax convert import`, and "
        place = "CHECKPOINT/tokenizer"
    remedy = f"{made}prepare the text again by `bert-jax prepare --tokenizer {place}`."
    raise ValueError(f"{source} and {dataset.path} have different tokenizers; {remedy}")


def _say_change(source: epath.Path, name: str, before: str, now: str) -> None:
    """Print a line if the source was trained with another attention, or other pairs."""
    if before != now and is_primary():
        say(f"{source} was trained with {name}={before}; this run has {now}.")


def _imported_params(
    config: PretrainConfig, dataset: Dataset, named: Shape | None
) -> tuple[Params, PretrainConfig]:
    """Return an imported model's parameters, and the configuration with its shape."""
    model = load_pretrained(config.init_from, config.allow_extra)
    if config.keep_optimizer:
        raise ValueError(
            f"keep_optimizer=True but {model.directory} was imported and has no "
            "optimizer; leave the option out."
        )
    _check_tokenizer(model.directory, model.tokenizer, dataset)
    attention = model.config.attention
    _say_change(model.directory, "attention", attention, config.model.attention)
    config = with_shape_of(config, vars(model.config), str(model.directory), named)
    return model.params, config


def check_source(
    config: RunConfig,
    source: InitSource | None,
    init_params: Callable[[jax.Array], Params],
) -> str:
    """Check that a source has the run's parameters; only whole heads may differ.

    `init_params` draws the run's parameters by a key. Return a line that names the
    source, the heads drawn by the seed, and those left out; "" without a source. Raise
    ValueError if a shape differs, a leaf is missing or not expected, or the step of a
    source that is continued is past `num_steps`.
    """
    if source is None:
        return ""
    shapes = jax.eval_shape(init_params, jax.random.key(config.seed))
    if isinstance(source, epath.Path):
        require_same_shapes(source / "state", shapes)
        if (step := read_manifest(source)["step"]) >= config.num_steps:
            raise ValueError(
                f"num_steps={config.num_steps} but {source} is at step {step} already; "
                "with keep_optimizer, num_steps includes those steps."
            )
        line = f"From {config.init_from}, with its optimizer state and its step."
        return line + _seed_note(source, config)
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
    heads = {f"Drawn by seed {config.seed}": fresh, "Not used": unused}
    parts = [
        f" {k}: {', '.join(sorted(names))}." for k, names in heads.items() if names
    ]
    return (
        f"From {config.init_from}, only its parameters: the optimizer is new, and "
        f"steps count from 0.{''.join(parts)}"
    )


def _seed_note(source: epath.Path, config: RunConfig) -> str:
    """Return what another seed than the source's decides in a run that goes on."""
    before = read_config(source).get("seed", config.seed)
    if before == config.seed:
        return ""
    return (
        f" Masks and dropout follow its random keys (seed {before}); "
        f"seed={config.seed} decides the order of the rows."
    )


def require_layers(
    config: RunConfig, model: BertConfig, is_random: bool = False
) -> None:
    """Raise ValueError if more layers are frozen than the model has, or random ones."""
    frozen, layers = config.optimizer.frozen_layers, model.num_hidden_layers
    require(
        frozen <= layers,
        f"optimizer.frozen_layers={frozen} but the model has {layers} layers; pass at "
        "most that.",
    )
    require(
        not (frozen and is_random),
        f"optimizer.frozen_layers={frozen} without init_from: random layers would stay "
        "as they are drawn; name a model to start from, or leave it out.",
    )


def has_all(source: Params | None, init_params: Callable[[jax.Array], Params]) -> bool:
    """Whether a run takes every parameter from a source, so that none is random."""
    wanted = _shapes(jax.eval_shape(init_params, jax.random.key(0)))
    return source is not None and wanted.keys() <= _shapes(source).keys()


def _shapes(params: Params) -> dict[str, tuple[int, ...]]:
    leaves = flatten_dict(params, sep="/").items()
    return {name: tuple(leaf.shape) for name, leaf in leaves}
