"""Question answering as fine-tuning knows it: SQuAD 1.1 and 2.0."""
