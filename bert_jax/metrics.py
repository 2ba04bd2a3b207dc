"""Scores of classification and regression over host arrays, in float64."""
