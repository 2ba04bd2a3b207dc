"""What `doctor` and `inspect` look at."""
