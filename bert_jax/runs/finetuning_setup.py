"""Everything that a fine-tuning run needs, prepared before it starts."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from etils import epath

from bert_jax.checkpoints.steps import CHECKPOINTS, read_config_as
from bert_jax.config import BertConfig, ExamplesConfig, FinetuneConfig
from bert_jax.config.checks import require
from bert_jax.config.embedding import Embedding
from bert_jax.config.model import OWN_FIELDS, POOLED_HEADS, Params
from bert_jax.model.classifiers import with_targets
from bert_jax.pretrained import load_pretrained
from bert_jax.runs.finetuning_examples import (
    check_unknown_tokens,
    say_on_primary,
    tokenize_cached,
    with_balance,
    with_fingerprints,
)
from bert_jax.runs.init_from import pin_source, require_layers
from bert_jax.runs.teacher import finetuning_teacher
from bert_jax.runs.workdir import require_same_verb
from bert_jax.tasks.answers.task import QuestionAnsweringTask
from bert_jax.tasks.class_names import class_finder, named_as
from bert_jax.tasks.distillation import Teacher
from bert_jax.tasks.example_report import example_lines
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tasks.lengths import (
    chosen_length_line,
    default_length,
    fit_lengths,
    row_length,
)
from bert_jax.tasks.pairs.prompts import chosen_embedding
from bert_jax.tasks.pairs.ranking import RELEVANCE
from bert_jax.tasks.pairs.vectors import PairVectorsTask
from bert_jax.tasks.predictions import Example, Split
from bert_jax.tasks.splits import match_splits, read_splits
from bert_jax.tasks.texts.task import TextTask
from bert_jax.tokenization import Tokenizer
from bert_jax.training.resume import Resume


@dataclasses.dataclass(frozen=True)
class FinetuningSetup:
    """A run that is ready to start."""

    task: FinetuningTask
    config: FinetuneConfig
    """The configuration, with all fields that depend on the files and the model."""
    tokenizer: Tokenizer
    train: Split
    validation: Split
    initial_params: Params | None
    """None if the run has a checkpoint, or initializes all parameters randomly."""
    teacher: Teacher | None = None


def merge_model_config(
    config: FinetuneConfig, source: BertConfig, where: str
) -> BertConfig:
    """Return the source's configuration with the run's values of `OWN_FIELDS`.

    Raise ValueError if the run sets another field to a different value. The record of a
    run, given for another one, has those of its model and its task.
    """
    values, expected = vars(config.model), vars(source)
    for name, default in vars(BertConfig()).items():
        is_set = values[name] not in (default, expected[name])
        if is_set and name not in OWN_FIELDS and not config.data.fingerprint:
            raise ValueError(
                f"model.{name}={values[name]} but {where} has {expected[name]}; leave "
                "the option out."
            )
    return source.changed(**{name: values[name] for name in OWN_FIELDS})


@dataclasses.dataclass(frozen=True)
class Start:
    """The model to start from."""

    model: BertConfig
    tokenizer: Tokenizer
    params: Params | None
    """None on resume."""
    embedding: Embedding | None
    """How it makes a vector of a text, if its files say it."""
    split: Literal["rows", "stratified"]
    """How examples are held out; a run that has begun keeps its rule."""
    own_length: int
    """Tokens of a row, by the model's files or its last run; 0: unknown. A run that has
    begun keeps its own."""
    fingerprint: str = ""
    """Of the training examples of the run, or of the one whose record is given."""


def resumed_start(config: FinetuneConfig, workdir: epath.Path, resume: Resume) -> Start:
    """Return the run's own model, without parameters."""
    require_same_verb(config, resume, workdir)
    checkpoint = workdir / CHECKPOINTS / str(resume.step)
    data = read_config_as(checkpoint, "data", ExamplesConfig)
    return Start(
        model=read_config_as(checkpoint, "model", BertConfig),
        tokenizer=Tokenizer.load(checkpoint / "tokenizer"),
        params=None,
        embedding=data.embedding,
        split=data.split,
        own_length=data.max_length,
        fingerprint=data.fingerprint,
    )


def load_start(
    config: FinetuneConfig, workdir: epath.Path, resume: Resume | None
) -> Start:
    """Return the model to start from; on resume, the run's own, without parameters."""
    if resume is not None:
        return resumed_start(config, workdir, resume)
    if not config.init_from:
        raise ValueError(
            "init_from is empty; pass --init-from with a workdir of `bert-jax "
            "pretrain`, a checkpoint, a Hugging Face directory or "
            "hf:OWNER/NAME."
        )
    model = load_pretrained(config.init_from, config.allow_extra)
    num_layers = model.config.num_hidden_layers
    fresh, frozen = config.reinitialise_layers, config.optimizer.frozen_layers
    name = f"reinitialise_layers={fresh}"
    if config.from_scratch:
        fresh, name = num_layers, "from_scratch=True"
    require(
        not (fresh and frozen) or fresh + frozen <= num_layers,
        f"{name} and optimizer.frozen_layers={frozen} overlap in {num_layers} layers: "
        "new ones would stay as they are drawn; lower one, or leave it out.",
    )
    # The configuration of a run that has begun may be given for another one.
    split = config.data.split if config.data.fingerprint else "stratified"
    return Start(
        named_as(model.config, config.data),
        model.tokenizer,
        model.params,
        model.embedding,
        split,
        model.own_length,
        config.data.fingerprint,
    )


def with_steps(config: FinetuneConfig, num_examples: int) -> FinetuneConfig:
    """Return the configuration with `num_steps` and the two numbers derived from it."""
    epoch_steps = math.ceil(num_examples / config.batch_size)
    all_steps = math.ceil(config.num_epochs * num_examples / config.batch_size)
    eval_every = config.eval_every or epoch_steps
    return config.changed(
        num_steps=config.num_steps or all_steps,
        eval_every=eval_every,
        checkpoint_every=config.checkpoint_every or eval_every,
    )


def with_lengths(config: FinetuneConfig, start: Start) -> ExamplesConfig:
    """Return the settings with lengths that fit the model; print what is chosen.

    A run that has begun keeps its own.
    """
    positions, own = start.model.max_position_embeddings, start.own_length
    length = own or default_length(config.task)
    data = fit_lengths(config.data, positions, length)
    if config.task != "question-answering":
        data = config.data.changed(max_length=data.max_length)
    if start.params is not None:
        line = chosen_length_line(config.data, data, own, positions)
        say_on_primary([line] if line else [])
    return data


def finetuning_model(
    config: FinetuneConfig,
    task: FinetuningTask,
    source: BertConfig,
    examples: Sequence[Example],
    workdir: epath.Path,
    resume: Resume | None = None,
) -> BertConfig:
    """Return the model with the head that the task needs.

    The labels of `examples` are the classes, in the source's order if it has the same
    and neither the configuration nor GLUE orders them. Raise ValueError if they, or the
    run's own fields, do not fit the model; a pooling that does not fit the run of
    `resume` is refused later.
    """
    labels = task.labels(examples)
    find = class_finder(source.labels, config.data.merge_labels)
    same = set(map(find, labels) if isinstance(task, TextTask) else labels)
    # A teacher has the order of its own.
    is_ordered = config.data.labels or config.data.glue or config.teacher
    if not is_ordered and same == set(source.labels):
        labels = source.labels
    where = config.init_from or str(workdir)
    model = merge_model_config(config, source, where)
    layers, positions = model.num_hidden_layers, model.max_position_embeddings
    fresh, frozen = config.reinitialise_layers, config.optimizer.frozen_layers
    rule = f"data.max_length={config.data.max_length} but the model has {positions}"
    holds = config.data.max_length <= positions
    require(holds, f"{rule} positions; pass at most that.")
    rule = f"reinitialise_layers={fresh} but the model has {layers} layers"
    require(fresh <= layers, f"{rule}; pass at most that.")
    require_layers(config, model)
    require(
        frozen < layers or not isinstance(task, PairVectorsTask),
        f"optimizer.frozen_layers={frozen} leaves nothing to train: the model has "
        f"{layers} layers, and {config.task} adds no head; pass fewer.",
    )
    model = model.changed(head=task.head, labels=labels, problem_type=task.problem_type)
    is_kept = keeps_head(source, model) and not (config.from_scratch or resume)
    if is_kept and model.head in POOLED_HEADS and source.pooling != model.pooling:
        line = f"{where} has model.pooling={source.pooling}, and this run "
        line += f"{model.pooling}; --model.pooling {source.pooling} trains it on."
        say_on_primary([line])
    return model


def resolved_data(config: FinetuneConfig, start: Start) -> ExamplesConfig:
    """Return the settings with what the model to start from defines of them."""
    data, embedding = with_lengths(config, start), config.data.embedding
    if config.task == "sentence-pairs" and data.sentence_pairs.objective != "rank":
        embedding = pair_embedding(data, start.model, start.embedding)
    labels = start.model.labels if data.label_names else ()
    return data.changed(
        split=start.split,
        labels=data.labels or labels,
        embedding=embedding,
        fingerprint=start.fingerprint,
    )


def prepare_finetuning(
    config: FinetuneConfig,
    workdir: epath.Path,
    cache: epath.Path,
    resume: Resume | None = None,
) -> FinetuningSetup:
    """Read the files, the model and its teacher, and complete the configuration.

    All are checked before anything is written. Tokenized examples are kept in `cache`;
    `resume` is the latest checkpoint of the run in `workdir`. Raise ValueError if
    files, models and options do not fit together.
    """
    config = pin_source(config, None if resume is None else resume.config)
    start = load_start(config, workdir, resume)
    source, tokenizer, params = start.model, start.tokenizer, start.params
    rate, data = rate_for(config, source, resume), resolved_data(config, start)
    config = config.changed(data=data, optimizer={"peak_learning_rate": rate})
    task = finetuning_task(config.task, data)
    splits = read_splits(task)
    class_examples = splits.train
    if not (config.data.validation or config.data.path):
        class_examples = [*splits.train, *splits.validation]  # of rare classes, too
    model = finetuning_model(config, task, source, class_examples, workdir, resume)
    if resume is None:  # a run that has begun keeps its own, or none
        mean, deviation = task.targets(splits.train)
        model = model.changed(target_mean=mean, target_deviation=deviation)
    task = with_model(task, model, splits.train)
    matched = match_splits(task, splits)
    recorded = "" if resume else config.data.fingerprint
    data = with_fingerprints(task.data, splits.train, matched, recorded)
    config = config.changed(model=model, data=data)
    config.check_shape()
    say_on_primary(task.label_warnings(class_examples))
    say_on_primary(example_lines(task, matched))
    check_unknown_tokens(task, tokenizer, matched.train)
    teacher, config = finetuning_teacher(config, tokenizer, resume)
    tokenize = functools.partial(tokenize_cached, task, tokenizer, config, cache)
    task, train = with_balance(config, task, tokenize(matched.train))
    config = with_steps(config, len(train.tokenized))
    if params is not None:
        params = None if config.from_scratch else without_head(params, source, model)
    validation = tokenize(matched.validation)
    task = with_first_length(task, train, validation)
    return FinetuningSetup(task, config, tokenizer, train, validation, params, teacher)


def with_model(
    task: FinetuningTask, model: BertConfig, train: Sequence[Example]
) -> FinetuningTask:
    """Return the task with its model, and with the number of texts of an example."""
    number = len(train[0].texts) if isinstance(task, TextTask) else 0
    data = task.data.changed(num_texts=number)
    return dataclasses.replace(task, model=model, data=data)


def keeps_head(source: BertConfig, model: BertConfig) -> bool:
    """Whether a model has the head of its source, with the same classes in any order.

    The labels of a reranker and of question answering are no names of classes.
    """
    is_same = set(source.labels) == set(model.labels)
    is_reranker = model.labels == (RELEVANCE,) and len(source.labels) == 1
    is_nameless = model.head == QuestionAnsweringTask.head or is_reranker
    return source.head == model.head and (is_same or is_nameless)


def without_head(params: Params, source: BertConfig, model: BertConfig) -> Params:
    """Return the parameters without the classifier, if its head or classes differ.

    Else its outputs have the order of the model's classes.
    """
    if not keeps_head(source, model):
        return {name: leaves for name, leaves in params.items() if name != "classifier"}
    mean, deviation = model.target_mean, model.target_deviation
    params = with_targets(source, params, mean, deviation)[1]
    has_order = model.head != QuestionAnsweringTask.head and len(model.labels) > 1
    if source.labels == model.labels or not has_order:
        return params
    index = {name: i for i, name in enumerate(source.labels)}
    order = [index[name] for name in model.labels]
    dense = {k: v[..., order] for k, v in params["classifier"]["dense"].items()}
    return params | {"classifier": {"dense": dense}}


def without_top(params: Params, config: FinetuneConfig) -> Params:
    """Return the parameters without the pooler and the layers to reinitialise."""
    count, num_layers = config.reinitialise_layers, config.model.num_hidden_layers
    if not count:
        return params
    top = {f"layer_{i}" for i in range(num_layers - count, num_layers)}
    encoder = {k: v for k, v in params["encoder"].items() if k not in top}
    others = {k: v for k, v in params.items() if k != "pooler"}
    return others | {"encoder": encoder}


NARROW, NARROW_RATE = 128, 1e-3
"""The largest width of the hidden states of small models, and the rate that they learn
most by; wider models have the paper's. Measured in docs/finetuning.md."""


def rate_for(config: FinetuneConfig, model: BertConfig, resume: Resume | None) -> float:
    """Return the learning rate; if it is that for the size of the model, print it.

    One that the configuration names stays as it is. A run that has begun keeps its own.
    """
    given = config.optimizer.peak_learning_rate
    if not config.rate_by_size:
        return given
    if resume:
        before = resume.config.get("optimizer", {}).get("peak_learning_rate")
        return before if isinstance(before, float) else given
    # Models of sentence pairs are trained further.
    if config.task == "sentence-pairs" or model.hidden_size > NARROW:
        # A record may have that of another size; one edited in its file stays.
        usual = FinetuneConfig.optimizer.peak_learning_rate
        return usual if given == NARROW_RATE else given
    line = f"Learning rate {NARROW_RATE:g}, for a model that is {model.hidden_size} "
    say_on_primary([f"{line}wide; --optimizer.peak-learning-rate sets another."])
    return NARROW_RATE


def pair_embedding(
    data: ExamplesConfig, source: BertConfig, embedding: Embedding | None
) -> Embedding:
    """Return how pairs become vectors, by the `embedding` of the source's files."""
    pairs = data.sentence_pairs
    theirs = chosen_embedding(embedding, pairs.pooling)
    require(
        theirs.pooling == "mean" or source.attention == "bidirectional",
        "pooling=cls cannot be used with attention=causal, by which [CLS] sees no "
        "other token; pass --data.sentence-pairs.pooling mean.",
    )
    for number in pairs.dimensions:
        width = source.hidden_size
        rule = f"vectors have {width} numbers; name fewer"
        require(number < width, f"data.sentence_pairs.dimensions: {number} but {rule}.")
    length = row_length(data, source)
    # The losses compare vectors of length 1, whatever the source compared them by.
    return theirs.changed(normalize=True, max_tokens=length, similarity="cosine")


def with_first_length(task: FinetuningTask, *splits: Split) -> FinetuningTask:
    """Return the task with the length of the longest first text, if it is of pairs."""
    if not isinstance(task, PairVectorsTask):
        return task
    rows = [split.tokenized for split in splits]
    longest = max(int(np.diff(one.starts)[:: one.choices].max()) for one in rows)
    return dataclasses.replace(task, first_length=-(-longest // 8) * 8)
