"""`python -m bert_jax.benchmark`: `bert-jax benchmark` where tyro is not installed."""

from bert_jax.__main__ import main

main("benchmark")
