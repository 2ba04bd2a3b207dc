"""BERT, from raw text to a fine-tuned model, in JAX and Flax."""
