"""Scores computed on the host, from NumPy arrays, tags and texts."""
