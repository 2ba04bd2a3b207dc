"""Checkpoints: written, verified, read again, and which steps are whole."""
