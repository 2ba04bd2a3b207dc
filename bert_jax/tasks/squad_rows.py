"""Questions and documents → rows of tokens, documents in overlapping windows."""
