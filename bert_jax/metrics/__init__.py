"""Scores, over arrays on the host."""
