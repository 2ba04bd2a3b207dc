r"""BERT large by LAMB, second of two phases: batches of 32,768 rows of 512 tokens.

    bert-jax pretrain configs/lamb_large_512.py --workdir runs/lamb512 \
        --data.path DATA --init-from runs/lamb128 --microbatches K

From where configs/lamb_large_128.py has its own. The warm-up begins anew, as there, and
so do the moments, which NVIDIA keeps.
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
    optimizer=OptimizerConfig(
        algorithm="lamb",
        peak_learning_rate=4e-3,
        warmup_steps=0,
        warmup_share=0.128,
    ),
    num_steps=1_563,
    batch_size=32_768,
    eval_every=100,
    checkpoint_every=50,
    init_from="runs/lamb128",
)
