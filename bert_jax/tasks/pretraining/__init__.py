"""Pretraining: masked LM and next sentence, or causal LM."""
