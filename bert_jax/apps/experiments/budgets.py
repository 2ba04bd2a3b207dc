"""The three budgets: what is spent on each pretraining, and its configurations."""

from bert_jax.apps.experiments.design import Budget
from bert_jax.config import (
    BertConfig,
    ExamplesConfig,
    FinetuneConfig,
    OptimizerConfig,
    PretrainConfig,
)


def _pretraining(model: BertConfig, batch_size: int, rate: float) -> PretrainConfig:
    """Return the base configuration; the number of steps follows from the FLOPs."""
    return PretrainConfig(
        model=model,
        optimizer=OptimizerConfig(
            peak_learning_rate=rate, warmup_steps=0, warmup_share=0.1, beta2=0.98
        ),
        batch_size=batch_size,
    )


def _finetuning(
    rate: float, dropout: float, length: int, num_steps: int
) -> FinetuneConfig:
    """Return the base configuration of fine-tuning.

    All variants have the mean of the hidden states, which causal attention has, too.
    """
    return FinetuneConfig(
        model=BertConfig(
            pooling="mean",
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        ),
        data=ExamplesConfig(max_length=length),
        optimizer=FinetuneConfig.optimizer.changed(peak_learning_rate=rate),
        num_steps=num_steps,
        batch_size=32,
    )


# The shape and the rates of the demo, which were measured on two cores
# (docs/pretraining.md): few rows are seen twice, so there is no dropout.
_TOY = BertConfig.tiny(
    vocab_size=0,
    max_position_embeddings=64,
    initializer_range=0.05,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
_SMALL = BertConfig.small(vocab_size=0, max_position_embeddings=128, dtype="bfloat16")
_BASE = BertConfig.base(vocab_size=0, max_position_embeddings=128, dtype="bfloat16")

BUDGETS = {
    "toy": Budget(
        name="toy",
        flops=1.5e12,
        seeds=8,
        pretraining=_pretraining(_TOY, batch_size=32, rate=2e-3),
        finetuning=_finetuning(1e-3, dropout=0.3, length=64, num_steps=160),
        sequence_length=64,
        vocab_size=4096,
    ),
    "small": Budget(
        name="small",
        flops=5e17,
        seeds=5,
        pretraining=_pretraining(_SMALL, batch_size=256, rate=5e-4),
        finetuning=_finetuning(1e-4, dropout=0.1, length=128, num_steps=1000),
        sequence_length=128,
        vocab_size=30522,
    ),
    "base": Budget(
        name="base",
        flops=3e19,
        seeds=5,
        pretraining=_pretraining(_BASE, batch_size=1024, rate=3e-4),
        finetuning=_finetuning(3e-5, dropout=0.1, length=128, num_steps=1000),
        sequence_length=128,
        vocab_size=30522,
    ),
}
