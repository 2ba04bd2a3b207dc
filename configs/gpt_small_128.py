"""A causal language model of BERT small's size: rows of 128 tokens, without pairs.

bert-jax prepare --input TEXT --tokenizer VOCABULARY --pairs none --output DATA
bert-jax pretrain configs/gpt_small_128.py --workdir runs/gpt --data.path DATA
bert-jax generate runs/gpt --prompt "The"
"""

from bert_jax import BertConfig, OptimizerConfig, PretrainConfig

config = PretrainConfig(
    model=BertConfig.small(
        vocab_size=0, attention="causal", max_position_embeddings=128
    ),
    objective="causal_lm",
    optimizer=OptimizerConfig(peak_learning_rate=5e-4, warmup_steps=1_000),
    num_steps=100_000,
    batch_size=128,
    eval_every=2_500,
    checkpoint_every=2_500,
)
