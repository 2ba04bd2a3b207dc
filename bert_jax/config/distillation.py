"""Configuration of what a run learns from a teacher."""

import dataclasses

from bert_jax.config.checks import RESOLVED, CheckedConfig, require


@dataclasses.dataclass(frozen=True, repr=False)
class DistillationConfig(CheckedConfig):
    """What a run learns from a teacher's scores (Hinton et al. 2015, §2).

    The loss is `label_weight` times the loss on the labels, plus `distillation_loss`.
    """

    label_weight: float = 0.5
    """Weight of the loss on the labels; 0: learn from the teacher alone."""
    scores_weight: float = 0.5
    """Weight of the divergence from the teacher's class probabilities, or of the
    squared difference from the number that it predicts."""
    temperature: float = 2.0
    """Divide the scores of both models by this before the softmax. The divergence is
    multiplied by its square, so that the gradient keeps its size."""
    fingerprint: str = dataclasses.field(default="", metadata=RESOLVED)
    """Hash of the teacher's files; filled in at the start, checked when resuming."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_not_negative("label_weight", *self.weights)
        self.require_positive("temperature")
        listed = " and ".join(f"{name}=0" for name in self.weights)
        holds = any(getattr(self, name) for name in self.weights)
        require(holds, f"{listed} learn nothing from the teacher; raise a weight.")
        why_not = "scores_weight=0; leave it out."
        self.require_effect("temperature", self.scores_weight > 0, why_not)

    @property
    def weights(self) -> tuple[str, ...]:
        """The fields that weigh a part of `distillation_loss`."""
        return ("scores_weight",)


@dataclasses.dataclass(frozen=True, repr=False)
class PretrainDistillationConfig(DistillationConfig):
    """What a pretraining run learns from a teacher: scores, states, relations."""

    hidden_weight: float = 0.0
    """Weight of the mean squared difference of hidden states, for models of the same
    width (Jiao et al. 2020, §3)."""
    student_layers: tuple[int, ...] = ()
    """With hidden_weight: layers whose outputs are compared, counted from 0; empty: all
    of them."""
    teacher_layers: tuple[int, ...] = ()
    """With hidden_weight: the teacher's layer for each of them; empty: every n-th, up
    to the last."""
    relations_weight: float = 0.0
    """Weight of the divergence of the relations between queries, between keys and
    between values; the models may differ in width (Wang et al. 2021, §3)."""
    relation_heads: int = 0
    """With relations_weight: number of parts in which the widths of both models are
    split; 0: the attention heads of the model."""
    relation_layer: int | None = None
    """With relations_weight: layer of the teacher that the last layer learns from,
    counted from 0; None: the last."""

    @property
    def weights(self) -> tuple[str, ...]:
        return ("scores_weight", "hidden_weight", "relations_weight")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_not_negative("relation_heads")
        for weight, names in (
            ("hidden_weight", ("student_layers", "teacher_layers")),
            ("relations_weight", ("relation_heads", "relation_layer")),
        ):
            for name in names:
                why_not = f"{weight}=0; leave it out, or raise {weight}."
                self.require_effect(name, getattr(self, weight) > 0, why_not)


def check_teacher(teacher: str, distillation: DistillationConfig) -> None:
    """Raise ValueError if fields are set that have no effect without a teacher."""
    if teacher:
        return
    for field in dataclasses.fields(distillation):
        value = getattr(distillation, field.name)
        require(
            value == field.default,
            f"distillation.{field.name}={value} has no effect without a teacher; pass "
            "--teacher with a model, or leave it out.",
        )
