"""What a dataset, a run or a model holds, and what this machine can do."""
