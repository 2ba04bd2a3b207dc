"""CoNLL-2003: persons, organizations, locations and others (Tjong Kim Sang 2003).

bert-jax finetune configs/conll2003.py --workdir runs/conll2003 --init-from MODEL \
    --data.path CONLL_DIR

The paper (Devlin et al. 2018, §5.3 and A.3): the first token of a word is labelled, a
cased model, batches of 16 or 32, 2 to 4 epochs, 2e-5 to 5e-5. Its code for other tasks:
rows of 128 tokens, warm-up over the first 10 %, linear decay. Ours: which of those. The
paper's model sees the sentences around each one too; ours does not.
"""

from bert_jax.config import ExamplesConfig, FinetuneConfig, OptimizerConfig

config = FinetuneConfig(
    task="token-classification",
    data=ExamplesConfig(path="conll2003", max_length=128),
    optimizer=OptimizerConfig(
        peak_learning_rate=5e-5, warmup_steps=0, warmup_share=0.1
    ),
    batch_size=32,
    num_epochs=3.0,
)
