"""What `bert-jax demo` pretrains: two layers of 128 on rows of 64 tokens.

bert-jax pretrain configs/demo.py --workdir runs/demo --data.path bert_jax_demo/data
"""

from bert_jax.apps.demo.demo import PRETRAINING as config

__all__ = ["config"]
