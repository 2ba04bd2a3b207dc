"""`python -m bert_jax.benchmark` is `bert-jax benchmark`."""

import sys

from bert_jax.cli import main

sys.exit(main(["benchmark", *sys.argv[1:]]))
