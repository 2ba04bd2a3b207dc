"""What a fine-tuning run is made of, worked out before it starts."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import math
from collections.abc import Sequence
from typing import Any

from etils import epath

from bert_jax.checkpoints.steps import CHECKPOINTS, read_config_as
from bert_jax.config import BertConfig, FinetuneConfig
from bert_jax.config.model import ProblemType
from bert_jax.data.example_cache import cached_examples, content_key
from bert_jax.distributed.collectives import is_primary
from bert_jax.pretrained import load_pretrained
from bert_jax.tasks.class_names import similar_label_warnings
from bert_jax.tasks.finetuning import Part
from bert_jax.tasks.lengths import fit_lengths, fitted_lengths
from bert_jax.tasks.problem import Problem, Record
from bert_jax.tasks.problems import problem_of
from bert_jax.tasks.splits import check_validation, read_parts
from bert_jax.terminal.messages import say
from bert_jax.tokenization import Tokenizer
from bert_jax.training.resume import Resume

OURS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dtype",
    "remat",
    "pooling",
)
"""Fields of the model that a fine-tuning run chooses; the others are the source's."""


@dataclasses.dataclass(frozen=True)
class FinetuningSetup:
    """A run, ready to start."""

    problem: Problem
    config: FinetuneConfig
    """With all that the files and the source say filled in."""
    tokenizer: Tokenizer
    train: Part
    validation: Part
    source: dict[str, Any] | None
    """Parameters to begin from; None: the run has checkpoints, or draws them all."""


def adopt(config: FinetuneConfig, source: BertConfig, where: str) -> BertConfig:
    """The source's shape with the run's own choices.

    Raises:
        ValueError: the run asks for another shape.
    """
    usual = BertConfig()
    for field in dataclasses.fields(BertConfig):
        ours, theirs = getattr(config.model, field.name), getattr(source, field.name)
        told = ours != getattr(usual, field.name)
        if field.name not in OURS and told and ours != theirs:
            raise ValueError(
                f"model.{field.name}={ours} but {where} has {theirs}; leave the option "
                "out."
            )
    chosen = {name: getattr(config.model, name) for name in OURS}
    return dataclasses.replace(source, **chosen)


def problem_type(config: FinetuneConfig) -> ProblemType:
    """What the scores of a sequence classifier will mean."""
    if config.task == "text-regression":
        return "regression"
    if config.data.multi_label:
        return "multi_label_classification"
    return "single_label_classification"


def fingerprint(records: Sequence[Record]) -> str:
    """Hexadecimal sha256 over the records."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(repr(record).encode() + b"\n")
    return digest.hexdigest()


def open_start(
    config: FinetuneConfig, workdir: epath.Path, resume: Resume | None
) -> tuple[BertConfig, Tokenizer, dict[str, Any] | None]:
    """The model to begin from; of a run that has begun, its own.

    Raises:
        ValueError: none is named, or it is none.
    """
    if resume is not None:
        checkpoint = workdir / CHECKPOINTS / str(resume.step)
        begun = read_config_as(checkpoint, "model", BertConfig)
        return begun, Tokenizer.load(checkpoint / "tokenizer"), None
    if not config.init_from:
        raise ValueError(
            "init_from is empty; pass --init-from with a workdir of `bert-jax "
            "pretrain`, a checkpoint, a Hugging Face directory or "
            "hf:OWNER/NAME@REVISION."
        )
    model = load_pretrained(config.init_from, config.allow_extra)
    return model.config, model.tokenizer, model.params


def with_steps(config: FinetuneConfig, num_examples: int) -> FinetuneConfig:
    """The configuration with its numbers of steps."""
    epoch = math.ceil(num_examples / config.batch_size)
    steps = config.num_steps or math.ceil(
        config.num_epochs * num_examples / config.batch_size
    )
    return dataclasses.replace(
        config,
        num_steps=steps,
        eval_every=config.eval_every or epoch,
        checkpoint_every=config.checkpoint_every or config.eval_every or epoch,
    )


def encoded(
    problem: Problem,
    tokenizer: Tokenizer,
    model: BertConfig,
    config: FinetuneConfig,
    cache: epath.Path,
    records: Sequence[Record],
) -> Part:
    """Records and their examples, tokenized once for all runs that share `cache`."""
    nowhere = dataclasses.replace(
        config.data, train="", validation="", path="", fingerprint=""
    )
    key = content_key(
        fingerprint(records),
        tokenizer.fingerprint,
        config.task,
        dataclasses.asdict(nowhere),
        [model.max_position_embeddings, model.labels, model.problem_type],
        importlib.metadata.version("bert_jax"),
    )
    examples = cached_examples(
        cache, key, lambda: problem.encode(records, tokenizer, model, config.data)
    )
    for notice in (
        problem.notices(records, examples, config.data) if is_primary() else ()
    ):
        say(notice)
    return Part(records, examples)


def with_lengths(config: FinetuneConfig, source: BertConfig) -> FinetuneConfig:
    """The configuration with lengths that the model can take; prints what changes."""
    positions = source.max_position_embeddings
    data = fit_lengths(config.data, positions)
    changed = fitted_lengths(config.data, data)
    if config.task != "question-answering":
        data = dataclasses.replace(config.data, max_length=data.max_length)
        changed = [each for each in changed if each.startswith("max_length")]
    if changed and is_primary():
        say(
            f"The model has {positions} positions: {', '.join(changed)} in place of "
            "the usual.",
        )
    return dataclasses.replace(config, data=data)


def finetuning_model(
    config: FinetuneConfig,
    problem: Problem,
    source: BertConfig,
    records: Sequence[Record],
    workdir: epath.Path,
) -> BertConfig:
    """The model with the head that the task needs.

    Args:
        records: that name the classes.

    Raises:
        ValueError: the records, or the run's own choices, do not go with the model.
    """
    labels = problem.labels(records, config.data)
    shape = adopt(config, source, config.init_from or str(workdir))
    if config.data.max_length > shape.max_position_embeddings:
        raise ValueError(
            f"data.max_length={config.data.max_length} but the model has "
            f"{shape.max_position_embeddings} positions; pass at most that."
        )
    layers = shape.num_hidden_layers
    for name, number in (
        ("reinitialise_layers", config.reinitialise_layers),
        ("optimizer.frozen_layers", config.optimizer.frozen_layers),
    ):
        if number > layers:
            raise ValueError(
                f"{name}={number} but the model has {layers} layers; pass at most that."
            )
    return dataclasses.replace(
        shape, head=problem.head, labels=labels, problem_type=problem_type(config)
    )


def prepare_finetuning(
    config: FinetuneConfig,
    workdir: epath.Path,
    cache: epath.Path,
    resume: Resume | None = None,
) -> FinetuningSetup:
    """Read the files and the model, and fill the configuration in.

    Args:
        cache: directory for tokenized examples.
        resume: the run's own newest whole checkpoint, which it goes on from.

    Raises:
        ValueError: something does not fit; one line says what.
    """
    problem = problem_of(config.task)
    source, tokenizer, params = open_start(config, workdir, resume)
    config = with_lengths(config, source)
    train, validation = read_parts(problem, config.data)
    apart = config.data.validation or config.data.path
    # A rare class may be among what is held out alone.
    known = train if apart else [*train, *validation]
    model = finetuning_model(config, problem, source, known, workdir)
    for line in similar_label_warnings(model.labels) if is_primary() else ():
        say(line)
    check_validation(problem, validation, model, config.data)
    encode = functools.partial(encoded, problem, tokenizer, model, config, cache)
    data = dataclasses.replace(config.data, fingerprint=fingerprint(train))
    if config.data.fingerprint not in ("", data.fingerprint):
        raise ValueError(
            f"data.fingerprint={config.data.fingerprint} but the training examples "
            f"have {data.fingerprint}; leave the option out, or name the file meant."
        )
    config = dataclasses.replace(config, model=model, data=data)
    learned = encode(train)
    config = with_steps(config, len(learned.examples))
    if params is not None:
        params = None if config.from_scratch else without_head(params, source, model)
    return FinetuningSetup(
        problem, config, tokenizer, learned, encode(validation), params
    )


def without_head(
    params: dict[str, Any], source: BertConfig, model: BertConfig
) -> dict[str, Any]:
    """The parameters, but for a classifier that was for something else."""
    if (source.head, source.labels) == (model.head, model.labels):
        return params
    return {name: leaves for name, leaves in params.items() if name != "classifier"}


def without_top(params: dict[str, Any], config: FinetuneConfig) -> dict[str, Any]:
    """The parameters, but for the pooler and topmost layers to be drawn anew."""
    number, layers = config.reinitialise_layers, config.model.num_hidden_layers
    if not number:
        return params
    top = {f"layer_{i}" for i in range(layers - number, layers)}
    encoder = {k: v for k, v in params["encoder"].items() if k not in top}
    kept = {k: v for k, v in params.items() if k != "pooler"}
    return kept | {"encoder": encoder}
