"""Tables of texts: files to numbered rows, and rows to files."""
