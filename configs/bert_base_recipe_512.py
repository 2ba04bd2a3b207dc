"""BERT base by what small budgets learn most from, second phase: rows of 512 tokens.

    bert-jax pretrain configs/bert_base_recipe_512.py --workdir runs/base512 \
        --data.path DATA --init-from runs/base128

Its model is that of bert_base_recipe_128.py; the optimizer is new, for the rate
of that phase has fallen to 0.
"""

from bert_jax import BertConfig, MaskingConfig, OptimizerConfig, PretrainConfig
from bert_jax.config import DataConfig

config = PretrainConfig(
    model=BertConfig.base(
        vocab_size=0,
        dtype="bfloat16",
        initializer="local",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    data=DataConfig(sequence_length=512),
    masking=MaskingConfig(rate=0.4, max_predictions=205),
    optimizer=OptimizerConfig(
        algorithm="muon",
        peak_learning_rate=2e-4,
        schedule="constant",
        decay_share=0.5,
        warmup_steps=2_000,
        beta2=0.98,
    ),
    num_steps=50_000,
    batch_size=256,
    init_from="runs/base128",
)
