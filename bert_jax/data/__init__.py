"""From raw text to batches of training rows, in NumPy; never imports JAX."""
