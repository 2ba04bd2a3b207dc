"""A model over the files of a corpus."""
