"""`python -m bert_jax.benchmark` is `bert-jax benchmark`."""

from bert_jax.cli import entry_point

entry_point("benchmark")
