"""The verbs `doctor` and `inspect`."""
