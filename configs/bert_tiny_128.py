"""BERT tiny, for one GPU or a few CPU cores: rows of 128 tokens.

bert-jax pretrain configs/bert_tiny_128.py --workdir runs/tiny --data.path DATA
"""

from bert_jax import BertConfig, OptimizerConfig, PretrainConfig

config = PretrainConfig(
    model=BertConfig.tiny(vocab_size=0),
    optimizer=OptimizerConfig(peak_learning_rate=5e-4, warmup_steps=1_000),
    num_steps=100_000,
    batch_size=128,
    eval_every=2_500,
    checkpoint_every=2_500,
)
