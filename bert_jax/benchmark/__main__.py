"""`python -m bert_jax.benchmark` is `bert-jax benchmark`."""

from bert_jax.__main__ import main

main("benchmark")
