"""What a process says, and the signals it gets."""
