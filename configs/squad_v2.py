"""SQuAD 2.0: where is the answer, if there is one? (Rajpurkar et al. 2018)

bert-jax finetune configs/squad_v2.py --workdir runs/squad_v2 --init-from MODEL \
    --data.train train-v2.0.json --data.validation dev-v2.0.json

The paper (Devlin et al. 2018, §4.3): batches of 48, 2 epochs, learning rate 5e-5. Its
code: rows of 384 tokens, stride 128, questions of 64 and answers of 30 tokens at most,
warm-up over the first 10 %, linear decay. Ours: evaluating every 1,000 steps.
"""

from bert_jax.config import ExamplesConfig, FinetuneConfig, OptimizerConfig

config = FinetuneConfig(
    task="question-answering",
    data=ExamplesConfig(max_length=384),
    optimizer=OptimizerConfig(
        peak_learning_rate=5e-5, warmup_steps=0, warmup_share=0.1
    ),
    batch_size=48,
    num_epochs=2.0,
    eval_every=1_000,
    checkpoint_every=1_000,
)
