"""What a kind of task says of its errors, as values."""
