"""A causal language model of characters, for two CPU cores: five minutes or less.

bert-jax vocab --input TEXT --kind char --cased --output CHARACTERS
bert-jax prepare --input TEXT --tokenizer CHARACTERS --pairs none --output DATA
bert-jax pretrain configs/gpt_characters.py --workdir runs/characters --data.path DATA
bert-jax generate runs/characters --prompt "The"
"""

from bert_jax import BertConfig, OptimizerConfig, PretrainConfig

config = PretrainConfig(
    model=BertConfig.tiny(
        vocab_size=0,
        attention="causal",
        max_position_embeddings=128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    objective="causal_lm",
    optimizer=OptimizerConfig(peak_learning_rate=2e-3, warmup_steps=100),
    num_steps=2_000,
    batch_size=32,
    eval_every=500,
    checkpoint_every=500,
    keep_checkpoints=4,
    log_every=50,
)
