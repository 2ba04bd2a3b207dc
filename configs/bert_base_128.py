"""BERT base, first of two phases (Devlin et al. 2018, A.2): rows of 128 tokens.

    bert-jax pretrain configs/bert_base_128.py --workdir runs/base128 --data.path DATA

The learning rate falls to 0 over both phases together, hence decay_steps.
"""

from bert_jax import BertConfig, MaskingConfig, OptimizerConfig, PretrainConfig

config = PretrainConfig(
    model=BertConfig.base(vocab_size=0, dtype="bfloat16"),
    masking=MaskingConfig(max_predictions=20),
    optimizer=OptimizerConfig(
        peak_learning_rate=1e-4, warmup_steps=10_000, decay_steps=1_000_000
    ),
    num_steps=900_000,
    batch_size=256,
)
