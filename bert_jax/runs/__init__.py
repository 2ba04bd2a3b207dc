"""Pretraining, fine-tuning and sweeps, from configuration to scores."""
