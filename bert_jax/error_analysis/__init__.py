"""What a fine-tuned model gets wrong: tables, curves and the worst examples."""
