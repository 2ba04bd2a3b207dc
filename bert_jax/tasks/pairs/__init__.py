"""Texts that belong together: vectors, and relevance."""
