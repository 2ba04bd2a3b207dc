"""BERT small, for one GPU or a few CPU cores: rows of 128 tokens.

bert-jax pretrain configs/bert_small_128.py --workdir runs/small --data.path DATA

Trained by what small budgets learn most from (docs/pretraining.md): at this size the
recipe was measured over 750 steps, at twice this learning rate. Text that is seen many
times may need dropout.
"""

from bert_jax import BertConfig, MaskingConfig, OptimizerConfig, PretrainConfig

config = PretrainConfig(
    model=BertConfig.small(
        vocab_size=0,
        initializer="local",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    masking=MaskingConfig(rate=0.4, max_predictions=51),
    optimizer=OptimizerConfig(
        algorithm="muon",
        peak_learning_rate=1e-3,
        schedule="constant",
        decay_share=0.3,
        warmup_steps=1_000,
        beta2=0.98,
    ),
    num_steps=100_000,
    batch_size=128,
    eval_every=2_500,
    checkpoint_every=2_500,
)
