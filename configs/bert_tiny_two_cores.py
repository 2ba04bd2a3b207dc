"""Two layers of 128 for ten minutes on two cores, on a few tens of megabytes of text.

bert-jax pretrain configs/bert_tiny_two_cores.py --workdir runs/tiny --data.path DATA

What a small budget teaches (docs/pretraining.md): Muon, first heads that attend to a
neighbour each, many masks, no dropout, and a learning rate that is not yet low when the
run ends.
"""

from bert_jax import BertConfig, MaskingConfig, OptimizerConfig, PretrainConfig

config = PretrainConfig(
    model=BertConfig.tiny(
        vocab_size=0,
        num_attention_heads=4,
        initializer_range=0.05,
        initializer="local",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    masking=MaskingConfig(rate=0.4, max_predictions=51),
    optimizer=OptimizerConfig(
        algorithm="muon",
        peak_learning_rate=2e-3,
        warmup_steps=300,
        decay_steps=5000,
        beta2=0.98,
    ),
    num_steps=3000,
    batch_size=32,
    eval_every=500,
    checkpoint_every=1000,
)
