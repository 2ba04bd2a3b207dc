r"""BERT large by LAMB, first of two phases: batches of 65,536 rows of 128 tokens.

    bert-jax pretrain configs/lamb_large_128.py --workdir runs/lamb128 \
        --data.path DATA --microbatches K

Batches are You et al. 2020's (64k, then 32k), and so is the decay, linear to 0; rates,
warm-ups and steps are NVIDIA's for them, which decays by a square root. Never run with
this library.
"""

from bert_jax import BertConfig, MaskingConfig, OptimizerConfig, PretrainConfig

config = PretrainConfig(
    model=BertConfig.large(vocab_size=0, dtype="bfloat16"),
    masking=MaskingConfig(max_predictions=20),
    optimizer=OptimizerConfig(
        algorithm="lamb",
        peak_learning_rate=6e-3,
        warmup_steps=0,
        warmup_share=0.2843,
    ),
    num_steps=7_038,
    batch_size=65_536,
    eval_every=500,
    checkpoint_every=200,
)
