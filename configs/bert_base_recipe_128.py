"""BERT base by what small budgets learn most from, first phase: rows of 128 tokens.

    bert-jax pretrain configs/bert_base_recipe_128.py --workdir runs/base128 \
        --data.path DATA

The model is the paper's; how it is trained is not (docs/pretraining.md, "What breaks
the plateau"): Muon, heads that begin with a neighbour each, 40 % masks (Wettig et al.
2022), no dropout, and half of the paper's steps. Measured on models of up to 512 wide;
at this size it is a start, not a figure. bert_base_128.py is the paper's own.
"""

from bert_jax import BertConfig, MaskingConfig, OptimizerConfig, PretrainConfig

config = PretrainConfig(
    model=BertConfig.base(
        vocab_size=0,
        dtype="bfloat16",
        initializer="local",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    masking=MaskingConfig(rate=0.4, max_predictions=51),
    optimizer=OptimizerConfig(
        algorithm="muon",
        peak_learning_rate=4e-4,
        schedule="constant",
        decay_share=0.3,
        warmup_steps=5_000,
        beta2=0.98,
    ),
    num_steps=450_000,
    batch_size=256,
)
