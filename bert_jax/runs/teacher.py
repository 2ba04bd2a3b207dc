"""The model that `teacher` names: what a run learns from besides its data."""

import shlex
from collections.abc import Sequence
from typing import TypeVar

from bert_jax.checkpoints.restore import OPTIMIZER
from bert_jax.checkpoints.steps import CHECKPOINTS
from bert_jax.config import BertConfig, FinetuneConfig, PretrainConfig
from bert_jax.config.checks import require
from bert_jax.config.serialization import to_dict
from bert_jax.config.training import check_widths
from bert_jax.data.example_cache import content_key
from bert_jax.data.records import Dataset
from bert_jax.model.classifiers import with_targets
from bert_jax.pretrained import Model, load_pretrained
from bert_jax.runs.init_from import pinned
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.distillation import Teacher, layer_pairs
from bert_jax.tokenization import Tokenizer
from bert_jax.training.resume import Resume

ConfigT = TypeVar("ConfigT", PretrainConfig, FinetuneConfig)


def with_pinned_teacher(config: ConfigT, before: str | None) -> ConfigT:
    """As `pin_source`, for the teacher: `before` is its name at an earlier start."""
    teacher = pinned(config.teacher, before, "The teacher is")
    return config.changed(teacher=teacher)


def fingerprint(model: Model, before: str = "") -> str:
    """Return the hexadecimal sha256 of a model's configuration and files.

    An optimizer's state, which may be removed, is not of the model. What a run has
    recorded, `before`, is kept if it is of the same model and its optimizer's state, as
    older versions recorded it.
    """
    files = [f for f in model.sources if not str(f["path"]).startswith(f"{OPTIMIZER}/")]
    kept = _hash(model, model.sources)
    return kept if kept == before else _hash(model, files)


def _hash(model: Model, sources: Sequence[JsonObject]) -> str:
    files = sorted(str(file["sha256"]) for file in sources)
    values = to_dict(model.config)
    if model.config.target_deviation == 1.0 and not model.config.target_mean:
        # Fields that runs which began before do not have in their fingerprint.
        del values["target_mean"], values["target_deviation"]
    return content_key(values, files)


def _with_fingerprint(config: ConfigT, model: Model, resume: Resume | None) -> ConfigT:
    """Return the configuration with the hash of its teacher; refuse another teacher."""
    name, before = config.teacher, resume.config if resume else {}
    values = before.get("distillation")
    recorded = values.get("fingerprint", "") if isinstance(values, dict) else ""
    stated = config.distillation.fingerprint
    actual, checkpoints = fingerprint(model, stated or recorded), model.directory.parent
    is_same = recorded in ("", actual) or name != before.get("teacher")
    require(
        is_same or checkpoints.name != CHECKPOINTS,
        f"teacher={name} was another checkpoint than {model.directory} when the run "
        f"began; name that one, as --teacher {checkpoints}/STEP.",
    )
    require(
        stated in ("", actual),
        f"distillation.fingerprint={stated} but teacher={name} has {actual}; name it "
        "by --teacher if it is meant, or the other model.",
    )
    return config.changed(distillation={"fingerprint": actual})


def _open(
    config: ConfigT, tokenizer: Tokenizer, length: int, resume: Resume | None
) -> tuple[Teacher, ConfigT]:
    """Return the teacher, and the configuration with its fingerprint."""
    before = None if resume is None else str(resume.config.get("teacher"))
    config = with_pinned_teacher(config, before)
    name = config.teacher
    model = load_pretrained(name, config.allow_extra)
    require(
        model.tokenizer.agrees_with(tokenizer),
        f"teacher={name} is a teacher with another vocabulary than the run's; name one "
        "whose tokenizer files are the same.",
    )
    positions = model.config.max_position_embeddings
    require(
        length <= positions,
        f"teacher={name} has {positions} positions, and the rows have up to {length} "
        "tokens; make rows that fit.",
    )
    check_widths(config.mesh, model.config, "the teacher's ")
    config = _with_fingerprint(config, model, resume)
    kernel, dtype = config.model.attention_kernel, config.model.dtype
    own = model.changed(
        model.params, dtype=dtype, attention_kernel=kernel, remat="none"
    )
    return Teacher(own.config, model.params), config


def pretraining_teacher(
    config: PretrainConfig, dataset: Dataset, resume: Resume | None
) -> tuple[Teacher | None, PretrainConfig]:
    """Return the teacher of a pretraining run, and the configuration completed by it.

    Raise ValueError if the teacher does not fit the run.
    """
    if not config.teacher:
        return None, config
    length = config.data.sequence_length
    teacher, config = _open(config, dataset.tokenizer, length, resume)
    name, theirs, ours = f"teacher={config.teacher}", teacher.config, config.model
    require(
        theirs.attention == ours.attention,
        f"{name} has attention={theirs.attention} and the run {ours.attention}; its "
        "scores would be of other tokens. Name a teacher with the same.",
    )
    heads = ["encoder"]
    if config.distillation.scores_weight:
        heads.append("masked_lm")
        require(
            "masked_lm" in teacher.params and theirs.vocab_size == ours.vocab_size,
            f"{name} has no scores of the {ours.vocab_size} tokens; name a pretrained "
            "model with its masked-LM head, or set distillation.scores_weight to 0.",
        )
    _check_internals(config, name, theirs)
    return Teacher(theirs, {head: teacher.params[head] for head in heads}), config


def _check_internals(config: PretrainConfig, name: str, theirs: BertConfig) -> None:
    """Check that the states and relations of the two models can be compared."""
    c, ours = config.distillation, config.model
    if c.hidden_weight:
        require(
            theirs.hidden_size == ours.hidden_size,
            f"{name} has hidden_size={theirs.hidden_size} and the model "
            f"{ours.hidden_size}, so that hidden states cannot be compared; set "
            "distillation.relations_weight instead of hidden_weight.",
        )
        layer_pairs(c, ours.num_hidden_layers, theirs.num_hidden_layers)
    if not c.relations_weight:
        return
    parts = c.relation_heads or ours.num_attention_heads
    for size in (ours.hidden_size, theirs.hidden_size):
        require(
            size % parts == 0,
            f"distillation.relation_heads={parts} does not divide hidden_size={size}; "
            "both models need a width that is a multiple of it.",
        )
    layer, count = c.relation_layer, theirs.num_hidden_layers
    require(
        layer is None or 0 <= layer < count,
        f"distillation.relation_layer={layer} but {name} has {count} layers; they are "
        f"counted from 0 to {count - 1}.",
    )


def finetuning_teacher(
    config: FinetuneConfig, tokenizer: Tokenizer, resume: Resume | None
) -> tuple[Teacher | None, FinetuneConfig]:
    """Return the teacher of a fine-tuning run, and the configuration completed by it.

    The configuration has the head and the labels of the model. Raise ValueError if the
    teacher does not fit them.
    """
    if not config.teacher:
        return None, config
    teacher, config = _open(config, tokenizer, config.data.max_length, resume)
    fields = ["head", "problem_type"]
    if config.task != "text-regression":
        fields.append("labels")
    for field in fields:
        theirs, ours = getattr(teacher.config, field), getattr(config.model, field)
        remedy = "fine-tune the teacher on the same task and classes."
        if field == "labels" and set(theirs) == set(ours):
            remedy = f"set data.labels to {shlex.join(theirs)}"
        require(
            theirs == ours,
            f"teacher={config.teacher} has {field}={theirs} and the run {ours}; "
            f"{remedy}",
        )
    mean, deviation = config.model.target_mean, config.model.target_deviation
    model, params = with_targets(teacher.config, teacher.params, mean, deviation)
    return Teacher(model, params), config
