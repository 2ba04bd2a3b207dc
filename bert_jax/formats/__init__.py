"""Other libraries' files, read."""
