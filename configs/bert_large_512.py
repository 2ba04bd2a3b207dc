"""BERT large, second of two phases (Devlin et al. 2018, A.2): rows of 512 tokens.

    bert-jax pretrain configs/bert_large_512.py --workdir runs/large512 \
        --data.path DATA --init-from runs/large128
"""

from bert_jax import (
    BertConfig,
    DataConfig,
    MaskingConfig,
    OptimizerConfig,
    PretrainConfig,
)

config = PretrainConfig(
    model=BertConfig.large(vocab_size=0, dtype="bfloat16"),
    data=DataConfig(sequence_length=512),
    masking=MaskingConfig(max_predictions=80),
    optimizer=OptimizerConfig(peak_learning_rate=1e-4, warmup_steps=10_000),
    num_steps=1_000_000,
    batch_size=256,
    init_from="runs/large128",
    keep_optimizer=True,
)
