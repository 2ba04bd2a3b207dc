"""RTE: does one sentence follow from another? (Bentivogli et al. 2009)

bert-jax finetune configs/rte.py --workdir runs/rte --init-from MODEL \
    --data.path GLUE_DIR

The paper (Devlin et al. 2018, §4.1 and A.3): batches of 32, 3 epochs, the best of four
learning rates from 2e-5 to 5e-5 on the validation set. Its code: rows of 128 tokens,
warm-up over the first 10 %, linear decay. Ours: which of the four.
"""

from bert_jax.config import ExamplesConfig, FinetuneConfig, OptimizerConfig

config = FinetuneConfig(
    task="text-classification",
    data=ExamplesConfig(path="glue", glue="rte", max_length=128),
    optimizer=OptimizerConfig(
        peak_learning_rate=2e-5, warmup_steps=0, warmup_share=0.1
    ),
    batch_size=32,
    num_epochs=3.0,
)
