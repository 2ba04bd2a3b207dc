"""Pages and tables: what a fine-tuned model gets wrong, and what all pages share."""
