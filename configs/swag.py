"""SWAG: which of four endings follows? (Zellers et al. 2018)

bert-jax finetune configs/swag.py --workdir runs/swag --init-from MODEL \
    --data.path SWAG_DIR

The paper (Devlin et al. 2018, §4.4): batches of 16, 3 epochs, learning rate 2e-5. Its
code for other tasks: rows of 128 tokens, warm-up over the first 10 %, linear decay.
Ours: evaluating every 1,000 steps.
"""

from bert_jax.config import ExamplesConfig, FinetuneConfig, OptimizerConfig

config = FinetuneConfig(
    task="multiple-choice",
    data=ExamplesConfig(path="swag", max_length=128),
    optimizer=OptimizerConfig(
        peak_learning_rate=2e-5, warmup_steps=0, warmup_share=0.1
    ),
    batch_size=16,
    num_epochs=3.0,
    eval_every=1_000,
    checkpoint_every=1_000,
)
