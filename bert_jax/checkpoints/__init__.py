"""Save, verify and restore checkpoints."""
