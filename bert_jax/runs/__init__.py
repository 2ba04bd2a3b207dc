"""The story on one page each: pretraining, fine-tuning, sweeps."""
