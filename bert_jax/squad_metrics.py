"""Scores of SQuAD 1.1 and 2.0, to the digit of the official scripts."""
