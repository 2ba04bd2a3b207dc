"""BERT base, second of two phases (Devlin et al. 2018, A.2): rows of 512 tokens.

    bert-jax pretrain configs/bert_base_512.py --workdir runs/base512 \
        --data.path DATA --init-from runs/base128
"""

from bert_jax import (
    BertConfig,
    DataConfig,
    MaskingConfig,
    OptimizerConfig,
    PretrainConfig,
)

config = PretrainConfig(
    model=BertConfig.base(vocab_size=0, dtype="bfloat16"),
    data=DataConfig(sequence_length=512),
    masking=MaskingConfig(max_predictions=80),
    optimizer=OptimizerConfig(peak_learning_rate=1e-4, warmup_steps=10_000),
    num_steps=1_000_000,
    batch_size=256,
    init_from="runs/base128",
    keep_optimizer=True,
)
