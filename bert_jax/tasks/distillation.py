"""What a task learns from a teacher: a trained model with the same tokenizer.

The teacher reads the batch of the student, masked alike, without dropout.
"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bert_jax.config import BertConfig, PretrainConfig, PretrainDistillationConfig
from bert_jax.config.checks import require
from bert_jax.config.model import Params
from bert_jax.masking.batch import MaskedBatch
from bert_jax.model.attention import Visibility
from bert_jax.model.distillation import (
    Internals,
    compute_with_internals,
    mean_by_row,
    relation_divergence,
    score_divergence,
    state_distance,
)
from bert_jax.model.inputs import Inputs
from bert_jax.model.losses import Sum, weighted_sum

TEACHER = "teacher"
"""The name of a teacher's parameters beside those that are trained."""
DISTILLATION_LOSS = "distillation_loss"


@dataclasses.dataclass(frozen=True, eq=False)
class Teacher:
    """A trained model to learn from."""

    config: BertConfig
    """With the dtype and the attention kernel of the run."""
    params: Params
    """A nested dict of NumPy arrays."""


def layer_pairs(
    config: PretrainDistillationConfig, num_layers: int, num_teacher_layers: int
) -> list[tuple[int, int]]:
    """Return the layers of student and teacher that are compared, counted from 0.

    Raise ValueError if a model has no such layer, or the two lists do not pair up.
    """
    ours = config.student_layers or tuple(range(num_layers))
    theirs = config.teacher_layers
    if not theirs:
        require(
            num_teacher_layers % num_layers == 0,
            f"the teacher has {num_teacher_layers} layers, no multiple of the "
            f"{num_layers} of the model; name one for each in "
            "distillation.teacher_layers.",
        )
        every = num_teacher_layers // num_layers
        theirs = tuple((layer + 1) * every - 1 for layer in ours)
    own, other = ("student", ours, num_layers), ("teacher", theirs, num_teacher_layers)
    for name, layers, count in (own, other):
        for layer in layers:
            require(
                0 <= layer < count,
                f"distillation.{name}_layers has {layer}, and that model has {count} "
                f"layers; they are counted from 0 to {count - 1}.",
            )
    require(
        len(ours) == len(theirs),
        f"distillation.teacher_layers has {len(theirs)} layers for the {len(ours)} to "
        "compare with them; name one for each.",
    )
    return list(zip(ours, theirs, strict=True))


def distil(
    config: PretrainConfig,
    teacher: Teacher,
    params: Params,
    masked: MaskedBatch,
    first: Int[Array, "B K"],
    dropout_key: Key[Array, ""] | None,
) -> tuple[tuple[Array, Array], Sum]:
    """Return the student's scores of tokens and pairs, and the distillation loss.

    That is a sum over the rows of the mean over each row's positions, and the number of
    rows: one count for scores, states and relations.

    Args:
        params: the student's, and beside them the teacher's.
        first: the position of each pair's [CLS].
    """
    inputs, predicted = masked.inputs, masked.predicted
    rows = (inputs, predicted, first)
    scores, student = compute_with_internals(
        config.model, params, "pretraining_scores", *rows, dropout_key=dropout_key
    )
    weight = config.distillation.scores_weight
    method, rest = ("token_scores", (predicted,)) if weight else ("hidden_states", ())
    teacher_scores, internals = compute_with_internals(
        teacher.config, params[TEACHER], method, inputs, *rest
    )
    total = internal_distance(config, student, internals, inputs)
    if weight:
        temperature = config.distillation.temperature
        divergence = score_divergence(scores[0], teacher_scores, temperature)
        total += weight * mean_by_row(divergence, masked.weights)
    real_rows = inputs.attention_mask.any(-1).astype(jnp.float32)
    return scores, weighted_sum(total, real_rows)


def internal_distance(
    config: PretrainConfig, student: Internals, teacher: Internals, inputs: Inputs
) -> Float[Array, " B"]:
    """Return the weighted distance of states and relations of each row."""
    c, real = config.distillation, inputs.attention_mask.astype(jnp.float32)
    total = jnp.zeros(len(real))
    if c.hidden_weight:
        pairs = layer_pairs(c, len(student.states), len(teacher.states))
        distances = [
            state_distance(student.states[ours], teacher.states[theirs])
            for ours, theirs in pairs
        ]
        total += c.hidden_weight * mean_by_row(jnp.stack(distances).mean(0), real)
    if c.relations_weight:
        layer = -1 if c.relation_layer is None else c.relation_layer
        causal = config.model.attention == "causal"
        visible = Visibility(inputs.attention_mask, inputs.pair_ids, causal).matrix()
        own, other = student.projections[-1], teacher.projections[layer]
        heads = c.relation_heads or config.model.num_attention_heads
        divergence = relation_divergence(own, other, visible, heads)
        total += c.relations_weight * mean_by_row(divergence, real)
    return total
