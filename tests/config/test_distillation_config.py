"""What the configuration of a teacher refuses, and how it is stored."""

import pytest

from bert_jax.config import (
    DistillationConfig,
    FinetuneConfig,
    PretrainConfig,
    PretrainDistillationConfig,
)
from bert_jax.config.serialization import from_dict, to_dict


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DistillationConfig(label_weight=-1.0), "label_weight=-1.0 must be"),
        (lambda: DistillationConfig(temperature=0.0), "temperature=0.0 must be finite"),
        (
            lambda: DistillationConfig(scores_weight=0.0),
            "scores_weight=0 learn nothing from the teacher; raise a weight",
        ),
        (
            lambda: PretrainDistillationConfig(scores_weight=0.0),
            "scores_weight=0 and hidden_weight=0 and relations_weight=0 learn nothing",
        ),
        (
            lambda: PretrainDistillationConfig(
                scores_weight=0.0, hidden_weight=1.0, temperature=4.0
            ),
            "temperature=4.0 has no effect with scores_weight=0",
        ),
        (
            lambda: PretrainDistillationConfig(student_layers=(1,)),
            r"student_layers=\(1,\) has no effect with hidden_weight=0",
        ),
        (
            lambda: PretrainDistillationConfig(relation_heads=8),
            "relation_heads=8 has no effect with relations_weight=0",
        ),
        (
            lambda: PretrainDistillationConfig(relations_weight=1.0, relation_heads=-1),
            "relation_heads=-1 must be",
        ),
        (
            lambda: PretrainConfig(
                distillation=PretrainDistillationConfig(temperature=3.0)
            ),
            "distillation.temperature=3.0 has no effect without a teacher; pass --tea",
        ),
        (
            lambda: FinetuneConfig(distillation=DistillationConfig(label_weight=0.0)),
            "distillation.label_weight=0.0 has no effect without a teacher",
        ),
        (
            lambda: FinetuneConfig(
                task="text-regression",
                teacher="runs/a",
                distillation=DistillationConfig(temperature=3.0),
            ),
            "distillation.temperature=3.0 has no effect with task=text-regression",
        ),
        (
            lambda: FinetuneConfig(task="sentence-pairs", teacher="runs/a"),
            "teacher='runs/a' cannot be used with task=sentence-pairs, which has no",
        ),
    ],
)
def test_refusals_name_value_and_rule(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_configuration_is_read_as_it_was_written():
    """Files of older versions have no teacher."""
    distillation = PretrainDistillationConfig(hidden_weight=1.0, student_layers=(0, 2))
    config = PretrainConfig(teacher="runs/a", distillation=distillation)
    values = to_dict(config)
    assert from_dict(PretrainConfig, values) == config
    older = {k: v for k, v in values.items() if k not in ("teacher", "distillation")}
    assert from_dict(PretrainConfig, older) == PretrainConfig()
