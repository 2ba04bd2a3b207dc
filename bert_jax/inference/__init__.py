"""Predictions, features and evaluation with a trained model."""
