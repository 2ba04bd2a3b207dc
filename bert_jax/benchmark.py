"""`python -m bert_jax.benchmark`: `bert-jax benchmark` where tyro is not installed."""

from bert_jax.__main__ import main

if __name__ == "__main__":
    main("benchmark")
