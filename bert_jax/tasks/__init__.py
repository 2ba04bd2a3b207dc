"""The tasks that can be trained: each turns rows into batches, losses and scores."""
