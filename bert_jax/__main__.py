"""`python -m bert_jax` is `bert-jax`."""

from bert_jax.cli import entry_point

entry_point()
