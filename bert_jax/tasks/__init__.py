"""What can be trained: each task turns rows into batches, losses and scores."""
